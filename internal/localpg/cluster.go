// Package localpg runs a private PostGIS cluster for this user: the database
// of a geodlq that was given no DATABASE_URL.
//
// All processes that use one directory share one server. Each is a member, and
// holds a shared flock(2) on <cluster>.members; who starts and who stops the
// server is decided under an exclusive one on <cluster>.lock; the server's own
// processes inherit a third, <cluster>.server, so that whether anything of it
// is alive is never guessed from a pid. The kernel lets go of all three when
// their holders die, so a crash leaves nothing to clean.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// superuser owns the cluster and everything in it, whatever the account that
// runs the server is called.
const superuser = "geodlq"

// database is the one that Start makes.
const database = "geodlq"

// ErrNotInstalled is what Start fails with where PostgreSQL or its PostGIS is
// missing; the message names the packages to install.
var ErrNotInstalled = errors.New("PostgreSQL with PostGIS is not installed")

// ErrInUse is what Remove fails with while a process uses the cluster.
var ErrInUse = errors.New("the private cluster is in use")

// Options say where a private cluster lies and how it is set.
type Options struct {
	// Dir is the directory the cluster belongs to; it is created if missing.
	Dir string
	// Settings are postgresql.conf settings that override ours. They hold
	// from the next time the server starts: who joins changes nothing.
	Settings map[string]string
	// Logger is told what is started, joined, moved and stopped; nil is silent.
	Logger *slog.Logger
}

// Cluster is a membership of a running private cluster, from Start to Close.
type Cluster struct {
	server  *server
	members *os.File
	logger  *slog.Logger

	once sync.Once
	err  error
}

// Start joins the private cluster of o.Dir, or starts it where none runs (and
// makes it where there is none), and returns once it takes connections and has
// the database "geodlq". Any number of processes, and of calls in a process,
// may share one directory; each needs its own Close.
//
// The server outlives a process that dies without Close: the next Start joins
// it. When ctx ends first, Start leaves the cluster as Close would.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return nil, err
	}
	lock, data, err := enter(ctx, dir, logger)
	if err != nil {
		return nil, err
	}
	defer unlock(lock)

	c, err := join(data, logger)
	if err != nil {
		return nil, err
	}
	if err := c.open(ctx, o.Settings); err != nil {
		return nil, errors.Join(err, c.leave())
	}
	return c, nil
}

// URL is a connection string for the database "geodlq" over the Unix socket.
func (c *Cluster) URL() string { return c.URLFor(database) }

// URLFor is URL for another database of the cluster.
func (c *Cluster) URLFor(db string) string { return c.server.url(db) }

// Alive reports whether the server still runs; Start starts one that does not.
func (c *Cluster) Alive() bool { return c.server.postmaster() != 0 }

// Close leaves the cluster. The last member out stops the server, cutting
// connections that are still open, and waits until it is down. Calls after the
// first return what the first did.
func (c *Cluster) Close() error {
	c.once.Do(func() { c.err = c.close() })
	return c.err
}

// Remove deletes the cluster of dir, wherever it lies, with all that is in it,
// and stops its server if a crash left one running. It fails with ErrInUse
// while there are members.
func Remove(ctx context.Context, dir string) error {
	dir, err := resolveDir(dir)
	if err != nil {
		return err
	}
	data, err := currentPlace(dir)
	if err != nil {
		return err
	}
	lock, err := lockExclusive(ctx, lockPath(data))
	if err != nil {
		return err
	}
	defer unlock(lock)

	c, err := join(data, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if !tryExclusive(c.members) {
		unlock(c.members)
		return fmt.Errorf("removing %s: %w", data, ErrInUse)
	}
	if err := c.leave(); err != nil {
		return err
	}
	return removePlace(dir, data)
}

// join makes the caller, who holds the lock of data, a member.
func join(data string, logger *slog.Logger) (*Cluster, error) {
	account, err := accountFor(data)
	if err != nil {
		return nil, err
	}
	members, err := openLock(membersPath(data))
	if err != nil {
		return nil, err
	}
	// Nobody holds it exclusively without the lock, which is ours.
	if err := flock(members, lockShared); err != nil {
		members.Close()
		return nil, fmt.Errorf("joining %s: %w", data, err)
	}
	return &Cluster{server: newServer(data, account, logger), members: members, logger: logger}, nil
}

// open brings the server up, with the database in it.
func (c *Cluster) open(ctx context.Context, settings map[string]string) error {
	if err := c.server.up(ctx, settings); err != nil {
		return err
	}
	return c.server.createDatabase(ctx, database)
}

func (c *Cluster) close() error {
	// Who holds the lock for long is starting the server, and so becomes a
	// member or stops it itself: we may leave without it.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	lock, err := lockExclusive(ctx, lockPath(c.server.data))
	if err != nil {
		unlock(c.members)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer unlock(lock)
	return c.leave()
}

// leave ends the membership, and the server when nobody else is a member. The
// caller holds the lock.
func (c *Cluster) leave() error {
	defer unlock(c.members)
	if !tryExclusive(c.members) {
		return nil
	}
	return c.server.stop()
}

// resolveDir makes dir, and gives it one name however it is reached.
func resolveDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("localpg: no directory given")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the data directory: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func connURL(db, socketDir string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(superuser),
		Path:   "/" + db,
		RawQuery: url.Values{
			"host": {socketDir}, "port": {port}, "sslmode": {"disable"},
		}.Encode(),
	}
	return u.String()
}

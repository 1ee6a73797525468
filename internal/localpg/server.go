package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How long the server may take for what, before we do something about it.
// Crash recovery has no limit but the caller's context.
const (
	orphanGrace   = 2 * time.Second  // processes of a dead server, to end by themselves
	claimLimit    = 60 * time.Second // what holds the server's lock, to let go or to answer
	socketLimit   = 10 * time.Second // a server we join, to show its socket
	fastStopLimit = 90 * time.Second // a fast shutdown, with its checkpoint
	quitLimit     = 10 * time.Second // an immediate one
)

var (
	errGone     = errors.New("the private PostgreSQL ended before it took connections")
	errNoSocket = errors.New("the private PostgreSQL runs without its socket")
)

// server is the PostgreSQL of one cluster. Its methods need the cluster's lock.
type server struct {
	data      string
	account   account
	socketDir string
	logger    *slog.Logger
}

func newServer(data string, a account, logger *slog.Logger) *server {
	return &server{data: data, account: a, socketDir: socketDir(data, a), logger: logger}
}

func (s *server) url(db string) string { return connURL(db, s.socketDir) }

// clusterName stands in the title of each of the server's processes.
func (s *server) clusterName() string { return "geodlq-" + shortHash(s.data) }

// up returns when the server takes connections: one that runs already, else
// one that it starts.
func (s *server) up(ctx context.Context, settings map[string]string) error {
	if err := makeSocketDir(s.socketDir, s.account); err != nil {
		return err
	}
	for {
		lock, err := s.claim(ctx)
		if err != nil {
			return err
		}
		started := lock != nil
		if started {
			err = s.start(ctx, settings, lock)
			lock.Close() // not unlocked: the server has it now
			if err != nil {
				return err
			}
		}
		err = s.waitReady(ctx, started)
		switch {
		case err == nil:
			s.logger.Info("private PostgreSQL is up", "cluster", s.data, "joined", !started)
			return nil
		case !started && errors.Is(err, errGone):
			continue // it was on its way down when we joined
		case !started && errors.Is(err, errNoSocket):
			s.logger.Warn("private PostgreSQL lost its socket, starting it again", "cluster", s.data)
			if err := s.halt(); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// claim returns the server's lock when nothing of a server is alive, or nil
// when one runs that can be joined.
func (s *server) claim(ctx context.Context) (*os.File, error) {
	lock, err := openLock(serverPath(s.data))
	if err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		if s.postmaster() != 0 {
			lock.Close()
			return nil, nil
		}
		if tryExclusive(lock) {
			return lock, nil
		}
		waited := time.Since(begin)
		if waited > orphanGrace {
			// In another container's pid namespace its pid is unseen.
			if s.answers(ctx) {
				lock.Close()
				return nil, nil
			}
			s.killOrphans()
		}
		err := pause(ctx, 20*time.Millisecond)
		if err == nil && waited > claimLimit {
			err = errors.New("it neither answers nor ends")
		}
		if err != nil {
			lock.Close()
			return nil, fmt.Errorf("waiting for what holds %s: %w", serverPath(s.data), err)
		}
	}
}

// start makes the cluster if there is none and runs its server, which inherits
// lock and with it says that it is alive.
func (s *server) start(ctx context.Context, settings map[string]string, lock *os.File) error {
	major, err := majorOf(s.data)
	if err != nil {
		return err
	}
	bin, err := findBinaries(ctx, major)
	if err != nil {
		return err
	}
	if major == 0 {
		if err := s.initdb(ctx, bin, lock, settings["fsync"] != "off"); err != nil {
			return err
		}
	}
	if err := s.writeConf(ctx, settings); err != nil {
		return err
	}
	s.dropStalePid()
	clearSocketDir(s.socketDir)

	// The shell opens the log, so that no pipe of ours stays open in a server
	// that outlives us. On the command line is what we rely on.
	cmd := s.account.sh(context.WithoutCancel(ctx), s.data,
		`umask 077; exec "$@" >log/start.log 2>&1`,
		bin.path("postgres"), "-D", s.data, "-k", s.socketDir, "-p", port, "-c", "cluster_name="+s.clusterName())
	cmd.ExtraFiles = []*os.File{lock}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting PostgreSQL as %s: %w", s.account.name, err)
	}
	go func() { _ = cmd.Wait() }() // leaves no zombie; how it ended is in its log
	return nil
}

// waitReady returns when the server answers a query. It fails with errGone,
// and the end of the log, when the server dies first, and with errNoSocket when
// one that we did not start shows no socket.
func (s *server) waitReady(ctx context.Context, started bool) error {
	for begin := time.Now(); ; {
		// Before the ping, in between which it may come up but not go down. Of
		// one that we join but did not start, orphans may be all that is left.
		alive := s.alive() && (started || s.postmaster() != 0)
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the private PostgreSQL: %w", ctx.Err())
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !passing(refused.Code) {
			return fmt.Errorf("connecting to the private PostgreSQL: %w", err)
		}
		if !alive {
			return fmt.Errorf("%w; its log ends with:\n%s", errGone, s.logTail(ctx))
		}
		if !started && refused == nil && time.Since(begin) > socketLimit {
			return errNoSocket
		}
		_ = pause(ctx, 20*time.Millisecond)
	}
}

// passing tells that a server which answers so will take connections later:
// starting up, recovering, shutting down, or full.
func passing(code string) bool {
	return code == "57P03" || code == "57P01" || code == "53300"
}

func (s *server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "SELECT 1")
	return err
}

// answers tells that a server is at the socket, ready or not.
func (s *server) answers(ctx context.Context) bool {
	err := s.ping(ctx)
	var refused *pgconn.PgError
	return err == nil || errors.As(err, &refused)
}

// createDatabase makes db unless it exists.
func (s *server) createDatabase(ctx context.Context, db string) error {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the private PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))

	var found bool
	const query = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
	if err := conn.QueryRow(ctx, query, db).Scan(&found); err != nil {
		return fmt.Errorf("looking for database %s: %w", db, err)
	}
	if found {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{db}.Sanitize()); err != nil {
		return fmt.Errorf("making database %s: %w", db, err)
	}
	return nil
}

// alive tells whether any process of the server lives.
func (s *server) alive() bool {
	if s.postmaster() != 0 {
		return true
	}
	lock, err := os.Open(serverPath(s.data))
	if err != nil {
		return false // none was ever started
	}
	defer lock.Close()
	return !tryExclusive(lock)
}

// stop ends the server, if it runs, and drops its socket's directory.
func (s *server) stop() error {
	if err := s.halt(); err != nil {
		return err
	}
	clearSocketDir(s.socketDir)
	os.Remove(s.socketDir)
	return nil
}

// halt shuts the server down, fast: clients are cut off, what they committed
// is kept. One that does not end so is ended anyhow; the next start recovers.
func (s *server) halt() error {
	if !s.alive() {
		return nil
	}
	if s.end(syscall.SIGINT, fastStopLimit) {
		s.logger.Info("private PostgreSQL stopped", "cluster", s.data)
		return nil
	}
	s.logger.Warn("private PostgreSQL does not shut down, ending it", "cluster", s.data)
	if s.end(syscall.SIGQUIT, quitLimit) || s.end(syscall.SIGKILL, quitLimit) {
		return nil
	}
	return fmt.Errorf("the private PostgreSQL at %s (pid %d) does not end", s.data, s.recordedPid())
}

// end signals the server until all of it is gone, or for as long as limit: one
// that was just started misses the first signals, and repeated they do no harm.
func (s *server) end(sig syscall.Signal, limit time.Duration) bool {
	for begin := time.Now(); s.alive(); time.Sleep(20 * time.Millisecond) {
		waited := time.Since(begin)
		if waited > limit {
			return false
		}
		if pid := s.postmaster(); pid != 0 {
			_ = syscall.Kill(pid, sig)
		} else if waited > orphanGrace {
			s.killOrphans()
		}
	}
	return true
}

// logTail is the end of what the server logged: before its collector ran, and
// after.
func (s *server) logTail(ctx context.Context) string {
	out, _ := s.account.sh(ctx, s.data,
		`tail -n 15 log/start.log; f=$(ls -t log/postgres-*.log | head -n 1) && tail -n 15 "$f"`).Output()
	return strings.TrimSpace(string(out))
}

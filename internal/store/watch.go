package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Watch finds out that a server hangs: its connections stand, and nothing comes back.
// Who waits for an answer can't tell that from a slow statement.
type Watch struct {
	to      *pgx.ConnConfig
	sockets sockets
}

// How often a server is asked whether it answers, and how long it has for that.
const (
	watchEvery   = 2 * time.Second
	watchTimeout = 8 * time.Second
)

// ConnectWatched is Connect with a watch over the server.
func ConnectWatched(ctx context.Context, url string, maxConns int32) (*pgxpool.Pool, *Watch, error) {
	w := &Watch{}
	pool, err := connect(ctx, url, func(c *pgxpool.Config) {
		w.to = c.ConnConfig.Copy() // whose deadlines cut at once
		adaptStore(c, maxConns)
		w.sockets.watch(c)
	})
	return pool, w, err
}

// Run asks the server every two seconds, on one connection that it keeps for that,
// until ctx ends. One that begins to hang, and does not answer for 8 s, is told to hangs,
// and the pool's connections are cut: who waits on one fails now.
func (w *Watch) Run(ctx context.Context, hangs func(error)) {
	var conn *pgx.Conn
	var hung bool
	for tick := time.NewTicker(watchEvery); ; {
		err := w.look(ctx, &conn)
		was := hung
		hung = ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
		if hung && !was { // who asks from now on knows, and has little patience
			hangs(fmt.Errorf("watch: %w", err))
			w.sockets.close()
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			if conn != nil {
				_ = conn.PgConn().Conn().Close() // no goodbye to a server that may hang
			}
			return
		case <-tick.C:
		}
	}
}

// look asks the server over conn, which it connects where it is nil or lost. A server
// that takes no more connections does answer.
func (w *Watch) look(ctx context.Context, conn **pgx.Conn) (err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if *conn == nil || (*conn).IsClosed() {
		if *conn, err = pgx.ConnectConfig(ctx, w.to); err != nil {
			*conn = nil
			return err
		}
	}
	return (*conn).Ping(ctx)
}

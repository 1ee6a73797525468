package store

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sockets are the open connections to a server, to be cut at once when it hangs. The
// end of a context is not enough for that: when it meets a pipeline in the middle of a
// result, pgx takes its deadline off again and waits for the rest (pgconn 5.13,
// ResultReader.receiveMessage before Pipeline.Close).
type sockets struct {
	dial pgconn.DialFunc
	mu   sync.Mutex
	open map[*socket]struct{}
}

type socket struct {
	net.Conn
	of *sockets
}

// watch keeps the connections of a pool that is made by c.
func (s *sockets) watch(c *pgxpool.Config) {
	s.dial, s.open = c.ConnConfig.DialFunc, map[*socket]struct{}{}
	c.ConnConfig.DialFunc = s.keep
}

// keep dials, and keeps the connection here until it is closed.
func (s *sockets) keep(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &socket{conn, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	return c, nil
}

func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close cuts all of them: whoever reads or writes there gets net.ErrClosed.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Conn.Close()
	}
	clear(s.open)
}

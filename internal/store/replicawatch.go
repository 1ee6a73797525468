package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// WatchReplica looks once a second how the replica stands, until ctx ends, and then
// closes its connections.
func (s *Store) WatchReplica(ctx context.Context) {
	defer s.replica.pool.Close()
	for tick := time.NewTicker(lookEvery); ; {
		s.lookAtReplica(ctx)
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// lookAtReplica asks the primary first, so that what it has written by then can have
// been replayed.
func (s *Store) lookAtReplica(ctx context.Context) {
	r := s.replica
	now := time.Now()
	origin, written, err := askPrimary(ctx, s.pool)
	r.mu.Lock()
	r.blind = err != nil
	if !r.blind {
		r.origin = &origin
		r.lag.wrote(written, now)
	}
	of := r.origin
	r.mu.Unlock()
	to := r.pool.Config().ConnConfig
	to.DialFunc = r.sockets.dial // when the others are cut, a look is not
	seen, err := askReplica(ctx, to, of)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		seen, err = askReplica(ctx, to, of) // recovery may have cut it off: one look is no evidence
	}
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	why := seen.flaw(of, r.config.Schema, err)
	if why == "" {
		r.replayed = *seen.replayed
		r.lag.replayed(r.replayed)
		r.state.Lag, r.state.AsOf = r.lag.lag(now), r.lag.asOf
		if seen.newest != nil && seen.newest.After(r.state.AsOf) {
			r.state.AsOf = *seen.newest
		}
	}
	r.settle(why, err)
}

const clusterSQL = "(select system_identifier from pg_control_system()), (select oid::bigint from pg_database where datname = current_database())"

func askPrimary(ctx context.Context, pool *pgxpool.Pool) (c cluster, written int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err = pool.QueryRow(ctx, "select "+clusterSQL+", (pg_current_wal_lsn() - '0/0')::bigint").Scan(&c.System, &c.Database, &written)
	return c, written, err
}

// standing is what a replica says of itself.
type standing struct {
	cluster
	recovering bool
	replayed   *int64
	newest     *time.Time // commit that it has replayed
	schema     int        // of our tables, where it is a replica of our database
}

// askReplica connects anew each time: a server that only answers those who are
// connected already is no good, and a look does not wait behind reads.
func askReplica(ctx context.Context, to *pgx.ConnConfig, origin *cluster) (s standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, to)
	if err != nil {
		return s, err
	}
	defer conn.Close(ctx) // a server that hangs does not say goodbye
	err = conn.QueryRow(ctx, "select "+clusterSQL+`, pg_is_in_recovery(),
		(pg_last_wal_replay_lsn() - '0/0')::bigint, pg_last_xact_replay_timestamp()`).
		Scan(&s.System, &s.Database, &s.recovering, &s.replayed, &s.newest)
	if err != nil || origin == nil || s.cluster != *origin {
		return s, err
	}
	err = conn.QueryRow(ctx, "select version from public.geodlq_version").Scan(&s.schema)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42P01" { // undefined_table
		return s, nil
	}
	return s, err
}

// flaw says why this is not a replica to read from, in words behind "the replica";
// empty: it is one.
func (s *standing) flaw(origin *cluster, schema int, err error) string {
	switch {
	case err != nil && Unavailable(err):
		return WhyUnavailable(err)
	case err != nil:
		return "does not say how it stands"
	case origin == nil:
		return "was not held against the primary yet"
	case s.System != origin.System:
		return "belongs to another cluster than the primary"
	case s.Database != origin.Database:
		return "shows another database than the primary"
	case !s.recovering || s.replayed == nil:
		return "is not a streaming replica"
	case s.schema < schema:
		return fmt.Sprintf("has version %d of the tables, not %d", s.schema, schema)
	}
	return ""
}

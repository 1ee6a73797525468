// Package store is all of geodlq's SQL, hand-written over pgx. Each exported
// method is one transaction; what an operator or a worker does to a letter is a
// conditional write with its row of history beside it.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
)

// Store reads and writes geodlq's tables.
type Store struct {
	pool    *pgxpool.Pool // of the primary
	replica *replica      // nil: there is none
	bucket  *payload.Bucket
	rules   Rules
	owner   atomic.Pointer[string] // see bucketOwner
	facets  facetCache
	blocks  blockCache
	folded  atomic.Int64  // changes since the log was vacuumed
	turns   chan struct{} // see turn

	maxRest   int64 // see the constants
	maxFacets int
	batchers
}

// Rules are the parts of the configuration that the tables' transitions obey.
type Rules struct {
	DedupeWindow   time.Duration // within which the same content without a key is a duplicate
	MaxJobAttempts int           // River's max_attempts: our tries plus a margin for workers that vanish
	RedriveCap     int           // redrives that may fail before a letter is quarantined
	RedriveBackoff time.Duration // times the failed redrives: a letter's not_before
	UndoWindow     time.Duration // for which the redrive of one letter waits, and can be taken back
	ReadTimeout    time.Duration // for a statement that reads letters by a filter; 0: none
	InlineMax      int           // bytes of a body that stays in its row; a larger one goes to the bucket
}

// New returns a Store over a migrated database and the bucket of its large bodies,
// which may be nil where neither bodies are written nor read.
func New(pool *pgxpool.Pool, bucket *payload.Bucket, rules Rules) *Store {
	s := &Store{pool: pool, bucket: bucket, rules: rules, maxRest: maxRest, maxFacets: maxFacets}
	s.batchers = newBatchers(s)
	s.turns = make(chan struct{}, runtime.GOMAXPROCS(0))
	return s
}

// Connect opens the store's pool on a connection string. A cancelled context
// cancels its query on the server too, so that an abandoned topology check does
// not go on.
func Connect(ctx context.Context, url string, maxConns int32) (*pgxpool.Pool, error) {
	return connect(ctx, url, func(c *pgxpool.Config) { adaptStore(c, maxConns) })
}

func adaptStore(c *pgxpool.Config, maxConns int32) {
	c.MaxConns = maxConns
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 5 * time.Second}
	}
}

// ConnectRiver opens River's own pool. Its notifier interrupts a wait by its
// context, which must not cancel anything on the server; and a generic plan of
// its fetch, made while the table was empty, turns into a scan later.
func ConnectRiver(ctx context.Context, url string, maxConns int32) (*pgxpool.Pool, error) {
	return connect(ctx, url, func(c *pgxpool.Config) {
		c.MaxConns = maxConns
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
	})
}

func connect(ctx context.Context, url string, adapt func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if _, set := config.ConnConfig.RuntimeParams["application_name"]; !set {
		config.ConnConfig.RuntimeParams["application_name"] = "geodlq"
	}
	adapt(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
}

// Ping returns nil once the database takes writes.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	err := s.pool.QueryRow(ctx, "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean").Scan(&readOnly)
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	if readOnly {
		return fmt.Errorf("ping: %w", ErrReadOnly)
	}
	return nil
}

// Reset closes all connections: after a failover each that is idle would fail once.
func (s *Store) Reset() { s.pool.Reset() }

// probeSize is about a page of PostgreSQL's, which a relation grows by.
const probeSize = 8 << 10

// Probe returns nil once the database takes writes: a page is written, and taken
// back. A disk without room fails it.
func (s *Store) Probe(ctx context.Context) error {
	filler := make([]byte, probeSize)
	_, _ = rand.Read(filler) // never fails; it must not be compressible
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "insert into failure_geometries (job_id, wkb) values (-1, $1)", filler); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

// errCommit: a commit failed, and what was written may stand or not.
var errCommit = errors.New("commit")

// queryer is a pool or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// reading runs fn in a snapshot that changes nothing, on the replica or the primary,
// and gives up a statement of it after Rules.ReadTimeout: ErrTooSlow. fn may be run
// twice: what it leaves is what it did last.
func (s *Store) reading(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return s.either(ctx, func(db *pgxpool.Pool, reach context.Context) error {
		ctx, cancel := within(ctx, reach)
		defer cancel()
		return s.readingOn(ctx, db, fn)
	})
}

// readingOn is reading on one server.
func (s *Store) readingOn(ctx context.Context, db *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	options := snapshotTx
	options.BeginQuery = "begin isolation level repeatable read read only; " + s.limitSQL()
	return tooSlow(ctx, pgx.BeginTxFunc(ctx, db, options, fn))
}

// limitSQL gives up each statement of a transaction after Rules.ReadTimeout.
func (s *Store) limitSQL() string {
	return fmt.Sprintf("set local statement_timeout = %d", s.rules.ReadTimeout.Milliseconds())
}

// tooSlow tells a statement that was given up.
func tooSlow(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "57014" && ctx.Err() == nil { // query_canceled
		return fmt.Errorf("%w: %w", dlq.ErrTooSlow, err)
	}
	return err
}

var snapshotTx = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// inTx runs fn in a transaction, which it commits when fn returns nil.
func (s *Store) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	return nil
}

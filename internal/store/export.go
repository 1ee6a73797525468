package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
)

// Letters streams the letters of a filter, newest first, all of one snapshot and
// a row at a time.
type Letters struct {
	rows   pgx.Rows
	cancel context.CancelFunc
	first  bool // the first row was read already: there is one
	letter dlq.Letter
	err    error
}

// Export begins to read the letters of a filter. The caller closes it. What fails on
// the replica before the first letter is read on the primary; what fails later has
// failed, since another server can't go on with the snapshot. ErrTooSlow where too many
// have to be looked at before there is a first one.
func (s *Store) Export(ctx context.Context, f dlq.Filter) (letters *Letters, err error) {
	err = s.either(ctx, func(db *pgxpool.Pool, reach context.Context) error {
		letters, err = s.export(ctx, db, reach, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return letters, nil
}

func (s *Store) export(ctx context.Context, db *pgxpool.Pool, reach context.Context, f dlq.Filter) (*Letters, error) {
	cond, args := where(f)
	ctx, cancel := within(ctx, reach)
	var late atomic.Bool
	if s.rules.ReadTimeout > 0 && !countable(f) {
		defer time.AfterFunc(s.rules.ReadTimeout, func() { late.Store(true); cancel() }).Stop()
	}
	rows, err := db.Query(ctx, "select "+letterColumns+" from dead_letters d where "+cond+" order by d.failed_at desc, d.id desc", args)
	l := &Letters{rows: rows, cancel: cancel}
	if err == nil {
		l.first = rows.Next()
		err = rows.Err()
	}
	switch {
	case err == nil:
		return l, nil
	case late.Load():
		err = fmt.Errorf("%w: %w", dlq.ErrTooSlow, err)
	}
	l.Close()
	return nil, err
}

// Next reads the next letter, if there is one.
func (l *Letters) Next() bool {
	if l.err != nil || !l.first && !l.rows.Next() {
		return false
	}
	l.first = false
	l.letter, l.err = pgx.RowToStructByName[dlq.Letter](l.rows)
	return l.err == nil
}

// Letter is what Next read, until it is called again.
func (l *Letters) Letter() *dlq.Letter { return &l.letter }

// Err is why Next stopped early, if it did.
func (l *Letters) Err() error {
	if l.err != nil {
		return fmt.Errorf("export: %w", l.err)
	}
	if err := l.rows.Err(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// Close lets go of the connection.
func (l *Letters) Close() {
	l.cancel() // what is left is not waited for
	l.rows.Close()
}

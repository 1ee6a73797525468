package store

import (
	"context"
	"fmt"

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
// failed, since another server can't go on with the snapshot.
func (s *Store) Export(ctx context.Context, f dlq.Filter) (letters *Letters, err error) {
	err = s.either(ctx, func(db *pgxpool.Pool, reach context.Context) error {
		letters, err = export(ctx, db, reach, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return letters, nil
}

func export(ctx context.Context, db *pgxpool.Pool, reach context.Context, f dlq.Filter) (*Letters, error) {
	cond, args := where(f)
	ctx, cancel := within(ctx, reach)
	rows, err := db.Query(ctx, "select "+letterColumns+" from dead_letters d where "+cond+" order by d.failed_at desc, d.id desc", args)
	if err != nil {
		cancel()
		return nil, err
	}
	l := &Letters{rows: rows, cancel: cancel}
	if l.first = rows.Next(); !l.first && rows.Err() != nil {
		l.Close()
		return nil, rows.Err()
	}
	return l, nil
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

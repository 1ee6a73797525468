package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// Letters streams the letters of a filter, newest first, all of one snapshot and
// a row at a time.
type Letters struct {
	rows   pgx.Rows
	letter dlq.Letter
	err    error
}

// Export begins to read the letters of a filter. The caller closes it.
func (s *Store) Export(ctx context.Context, f dlq.Filter) (*Letters, error) {
	cond, args := where(f)
	rows, err := s.pool.Query(ctx, "select "+letterColumns+" from dead_letters d where "+cond+" order by d.failed_at desc, d.id desc", args)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return &Letters{rows: rows}, nil
}

// Next reads the next letter, if there is one.
func (l *Letters) Next() bool {
	if l.err != nil || !l.rows.Next() {
		return false
	}
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
func (l *Letters) Close() { l.rows.Close() }

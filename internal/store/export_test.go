package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// CountByBlocks makes counts read blocks, however few letters a part of an hour has.
func (s *Store) CountByBlocks() { s.maxRest = -1 }

// TellNoFacets makes lists and counts of parts of an hour go by names, as where there are
// very many facets.
func (s *Store) TellNoFacets() { s.maxFacets, s.maxRest = 0, maxRest }

// The ways by rows, whatever the filter: what counts say must be the same.

func (s *Store) RowTile(ctx context.Context, f dlq.Filter, t dlq.Tile) (tile []byte, err error) {
	err = s.reading(ctx, func(tx pgx.Tx) error {
		tile, _, err = s.rowTile(ctx, tx, f, t)
		return err
	})
	return tile, err
}

func (s *Store) RowStats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error) {
	stats := &dlq.Stats{}
	return stats, s.reading(ctx, func(tx pgx.Tx) error {
		cube, err := s.rowStats(ctx, tx, f, stats)
		if err != nil {
			return err
		}
		return cube.fillStats(ctx, tx, stats)
	})
}

func (s *Store) RowCharts(ctx context.Context, f dlq.Filter) (*dlq.Charts, error) {
	charts := &dlq.Charts{}
	return charts, s.reading(ctx, func(tx pgx.Tx) error { return s.rowCharts(ctx, tx, f, charts) })
}

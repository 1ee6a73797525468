package main

import (
	"context"
	"log/slog"
	"time"

	"geodlq/internal/store"
)

// foldEvery is how often changes of letters are folded into the counts. Counts are
// exact in between too: folding keeps them quick.
const foldEvery = 500 * time.Millisecond

// foldComplaint is how often a failure to fold is logged: while the database is away
// each one fails.
const foldComplaint = 10 * time.Second

// runFolder folds, once the database is there, until ctx ends, in every process: the
// database lets one at a time.
func (p *process) runFolder(ctx context.Context, db *database, s *store.Store, logger *slog.Logger) error {
	if err := db.await(ctx); err != nil {
		return ignoreCanceled(ctx, err)
	}
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	var complained time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := s.Fold(ctx)
		if err != nil && ctx.Err() == nil && time.Since(complained) > foldComplaint {
			complained = time.Now()
			logger.Warn("the counts of letters were not folded; they are exact, but slow to read", "error", err)
		}
	}
}

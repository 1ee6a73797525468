package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"geodlq/internal/payload"
	"geodlq/internal/store"
)

// How often upkeep runs. The sweeper must come round well inside River's
// retention of ended jobs, a day for cancelled ones.
const (
	sweepEvery   = 10 * time.Second
	forgetEvery  = time.Hour
	foldEvery    = 5 * time.Second
	checkEvery   = 10 * time.Minute
	collectEvery = 10 * time.Minute
)

// sweepAge spares events and jobs that are only just being written.
const sweepAge = 5 * time.Second

// collectAge is how old a blob without a row must be to be collected: far longer than
// any upload waits for its transaction.
const collectAge = 2 * time.Hour

type sweepArgs struct{}

func (sweepArgs) Kind() string { return "sweep" }

type forgetArgs struct{}

func (forgetArgs) Kind() string { return "forget" }

type collectArgs struct{}

func (collectArgs) Kind() string { return "collect_blobs" }

type foldArgs struct{}

func (foldArgs) Kind() string { return "ledger_fold" }

type checkArgs struct{}

func (checkArgs) Kind() string { return "ledger_check" }

func addUpkeep(workers *river.Workers, s *store.Store, c Config, logger *slog.Logger) {
	var sweeping sync.Mutex
	var from int64
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[sweepArgs]) error {
		sweeping.Lock()
		defer sweeping.Unlock()
		made, next, err := s.Sweep(ctx, sweepAge, from)
		from = next
		if made > 0 {
			logger.WarnContext(ctx, "the sweeper made letters that the trigger had missed", "letters", made)
		}
		return err
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[forgetArgs]) error {
		if _, err := s.ReleaseBodies(ctx); err != nil {
			return err
		}
		_, err := s.Forget(ctx, c.KeyRetention)
		return err
	}))
	addCollector(workers, s, logger)
}

// addCollector deletes blobs that no row refers to: of uploads whose transaction never
// came, and of rows whose process died before it had deleted theirs. A run goes on
// where the last one of this process ended.
func addCollector(workers *river.Workers, s *store.Store, logger *slog.Logger) {
	var mu sync.Mutex
	var from payload.Cursor
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[collectArgs]) error {
		mu.Lock()
		defer mu.Unlock()
		collected, next, err := s.Collect(ctx, collectAge, from)
		if collected > 0 {
			logger.InfoContext(ctx, "collected blobs that no row refers to", "blobs", collected)
		}
		from = next
		return err
	}))
}

// addLedger keeps the ledger: folds what was counted, and holds it against the
// tables.
func addLedger(workers *river.Workers, s *store.Store, logger *slog.Logger) {
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[foldArgs]) error {
		_, err := s.FoldLedger(ctx)
		return err
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[checkArgs]) error {
		check, err := s.CheckLedger(ctx)
		if err != nil {
			return err
		}
		for i, m := range check.Mismatches {
			if i == maxSaid {
				logger.ErrorContext(ctx, "the ledger does not add up: there is more", "figures", check.Mismatched)
				break
			}
			logger.ErrorContext(ctx, "the ledger does not add up", "source", m.Source, "day", m.Day.Format(time.DateOnly),
				"column", m.Column, "ledger", m.Ledger, "tables", m.Tables)
		}
		return nil
	}))
}

// maxSaid bounds the lines that one check logs.
const maxSaid = 20

func periodicUpkeep() []*river.PeriodicJob {
	once := &river.InsertOpts{MaxAttempts: 1}
	return []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(sweepEvery),
			func() (river.JobArgs, *river.InsertOpts) { return sweepArgs{}, once },
			&river.PeriodicJobOpts{RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(examineEvery),
			func() (river.JobArgs, *river.InsertOpts) { return examineArgs{}, once },
			&river.PeriodicJobOpts{RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(feedEvery),
			func() (river.JobArgs, *river.InsertOpts) { return feedAllArgs{}, once },
			&river.PeriodicJobOpts{RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(forgetEvery),
			func() (river.JobArgs, *river.InsertOpts) { return forgetArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(collectEvery),
			func() (river.JobArgs, *river.InsertOpts) { return collectArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(foldEvery),
			func() (river.JobArgs, *river.InsertOpts) { return foldArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(checkEvery),
			func() (river.JobArgs, *river.InsertOpts) { return checkArgs{}, once },
			&river.PeriodicJobOpts{RunOnStart: true}),
	}
}

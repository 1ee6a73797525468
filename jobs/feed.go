package jobs

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"geodlq/internal/store"
)

// feedEvery is how often running orders are looked after: one whose feeder was
// killed goes on this much later.
const feedEvery = 2 * time.Second

// feedFor bounds one run of a feeder, well inside a job's timeout.
const feedFor = 20 * time.Second

// feedArgs are those of the job that an order's start enqueues.
type feedArgs struct {
	RedriveID int64 `json:"redrive_id"`
}

func (feedArgs) Kind() string { return store.FeedKind }

// feedAllArgs are those of the periodic job that feeds whatever is running.
type feedAllArgs struct{}

func (feedAllArgs) Kind() string { return "redrive_feed_all" }

func addFeeders(workers *river.Workers, s *store.Store) {
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[feedArgs]) error {
		return feed(ctx, s, job.Args.RedriveID)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[feedAllArgs]) error {
		running, err := s.RunningRedrives(ctx)
		if err != nil {
			return err
		}
		for _, id := range running {
			if err := feed(ctx, s, id); err != nil {
				return err
			}
		}
		return s.EndRedrives(ctx)
	}))
}

// Letters fed by a transaction: few at first, so that something happens soon after
// the start, then enough to share a commit.
const (
	firstBatch = 200
	fullBatch  = 2000
)

// feed does an order's action to its letters, batch by batch, each a transaction:
// wherever it is killed, a consistent remainder waits for the next feeder.
func feed(ctx context.Context, s *store.Store, id int64) error {
	batch := firstBatch
	for until := time.Now().Add(feedFor); time.Now().Before(until); batch = fullBatch {
		fed, err := s.FeedRedrive(ctx, id, batch)
		if err != nil || fed == 0 {
			return err
		}
	}
	return nil
}

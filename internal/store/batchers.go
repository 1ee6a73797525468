package store

import (
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/batch"
	"geodlq/internal/dlq"
)

// batchers are what many callers do at once, each in a round trip that they share.
type batchers struct {
	accepting  *batch.Batcher[[]arrival, []dlq.Receipt]
	loading    *batch.Batcher[int64, *dlq.Event]
	checking   *batch.Batcher[[]byte, *Flaw]
	projecting *batch.Batcher[projection, projected]
	completing *batch.Batcher[completion, completed]
}

// Bounds of a batch. A geometry over maxSharedWKB is checked and reprojected by
// itself, since others would wait for it.
const (
	maxBatch      = 500
	maxBatchBytes = 2 << 20
	maxSharedWKB  = 16 << 10
	batchRunners  = 2                     // one round trip is under way while the next fills
	linger        = 20 * time.Millisecond // of workers, for whom nobody waits; 5 ms made 0.94 times as many events a second
)

func newBatchers(s *Store) batchers {
	return batchers{
		accepting: batch.New(s.acceptGroups, batch.Options[[]arrival]{
			Max: 1000, Runners: batchRunners, Timeout: 10 * time.Second, Split: refusesOne,
			Weigh: weighArrivals, MaxWeight: maxBatchBytes,
		}),
		loading: batch.New(s.loadAll, batch.Options[int64]{
			Max: maxBatch, Runners: batchRunners, Timeout: 10 * time.Second, Linger: linger, Split: refusesOne,
		}),
		checking: batch.New(s.checkAll, batch.Options[[]byte]{
			Max: maxBatch, Runners: batchRunners, Timeout: 5 * time.Second, Linger: linger, Split: refusesOne,
			Weigh: func(wkb []byte) int { return len(wkb) }, MaxWeight: maxBatchBytes,
		}),
		projecting: batch.New(s.projectAll, batch.Options[projection]{
			Max: maxBatch, Runners: batchRunners, Timeout: 5 * time.Second, Linger: linger, Split: refusesOne,
			Weigh: func(p projection) int { return len(p.wkb) }, MaxWeight: maxBatchBytes,
		}),
		completing: batch.New(s.completeAll, batch.Options[completion]{
			Max: maxBatch, Runners: batchRunners, Timeout: 5 * time.Second, Linger: linger, Split: refusesOne,
			Weigh: func(c completion) int { return c.size() }, MaxWeight: maxBatchBytes,
		}),
	}
}

func weighArrivals(group []arrival) int {
	weight := 0
	for i := range group {
		weight += 500 + len(group[i].row.Body) // bytes that a row takes beside its body, about
	}
	return weight
}

// refusesOne reports whether an error may be the fault of one row of many: the server
// refused the statement and lives on.
func refusesOne(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Severity == "ERROR" && !Unavailable(err) && !strings.HasPrefix(pgErr.Code, "57")
}

// refusal is what the server said of one row of many, caught there; nil where code is.
func refusal(code, message *string) error {
	if code == nil {
		return nil
	}
	return &pgconn.PgError{Severity: "ERROR", Code: *code, Message: *message}
}

package jobs

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"geodlq/internal/dlq"
)

// tryState is what a job's metadata keeps from one try to the next. It is written
// in the update that ends a try, so that one whose process died leaves no trace.
type tryState struct {
	Tries      int           `json:"tries"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Unknown    bool          `json:"outcome_unknown,omitempty"` // an earlier try's outcome was not known
	Redrive    *struct {
		LetterID int64 `json:"letter_id"`
	} `json:"redrive,omitempty"`
}

func readTryState(metadata []byte) tryState {
	var s tryState
	if err := json.Unmarshal(metadata, &s); err != nil {
		return tryState{}
	}
	return s
}

// revived: a job that somebody retried in River begins to count anew.
func (s tryState) revived(e *dlq.Event) bool { return e.State == dlq.EventDead }

// rememberTry keeps the count for the next try, in the update that ends this one,
// and for NextRetry of this one.
func rememberTry(ctx context.Context, job *river.Job[dlq.EventArgs], s tryState) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(job.Metadata, &all); err != nil {
		all = map[string]json.RawMessage{}
	}
	for name, value := range map[string]any{"tries": s.Tries, "retry_after": s.RetryAfter, "outcome_unknown": s.Unknown} {
		text, _ := json.Marshal(value) // of a number or a boolean
		all[name] = text
		// The only error is a context that is no worker's.
		_ = river.MetadataSet(ctx, name, json.RawMessage(text))
	}
	job.Metadata, _ = json.Marshal(all)
}

// retryPolicy is capped exponential backoff with jitter: the pause after the n-th
// try is between a half and the whole of base × 2^(n-1), at most max.
type retryPolicy struct{ base, max time.Duration }

// NextRetry honours what the sink asked for.
func (p retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	s := readTryState(job.Metadata)
	return time.Now().Add(max(p.pause(s.Tries), s.RetryAfter))
}

func (p retryPolicy) pause(tries int) time.Duration {
	pause := p.base
	for n := 1; n < tries && pause < p.max; n++ {
		pause *= 2
	}
	pause = min(pause, p.max)
	return pause/2 + rand.N(pause/2+1)
}

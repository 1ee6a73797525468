package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

// isolateAfter is how many times a job's worker may vanish before the job runs
// alone, in a process of its own: a body that kills its worker must not take its
// neighbours along for ever.
const isolateAfter = 2

// rescueText is how River's rescuer begins the error that it writes.
const rescueText = "Stuck job rescued"

func rescues(job *rivertype.JobRow) int {
	n := 0
	for _, e := range job.Errors {
		if strings.HasPrefix(e.Error, rescueText) {
			n++
		}
	}
	return n
}

// Isolated is how a run in a process of its own ended, as that process tells it.
type Isolated struct {
	Failure    *dlq.Failure  `json:"failure,omitempty"`
	Transient  bool          `json:"transient,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// Death is how a process ended that could not tell.
type Death struct {
	ExitCode int
	Text     string // such as "signal: killed"
	MaxRSS   int64  // bytes of memory at most
}

// Isolate runs an event in a process of its own: RunAlone, there. death is set where
// that process died while this one lives; err where it could not be started, or ctx
// ended.
type Isolate func(ctx context.Context, eventID, jobID int64, tries int) (result *Isolated, death *Death, err error)

// runAlone is Run in a process of its own, one at a time.
func (w *eventWorker) runAlone(ctx context.Context, event *dlq.Event, tries int) (pipeline.Outcome, error) {
	if err := w.alone.Acquire(ctx, 1); err != nil {
		return pipeline.Outcome{}, err
	}
	defer w.alone.Release(1)
	result, death, err := w.isolate(ctx, event.ID, event.JobID, tries)
	switch {
	case err != nil:
		return pipeline.Outcome{}, err
	case death == nil:
		return pipeline.Outcome{Failure: result.Failure, Transient: result.Transient, RetryAfter: result.RetryAfter}, nil
	}
	text := fmt.Sprintf("the process that worked on it alone died: %s, with %d MB of memory at most", death.Text, death.MaxRSS>>20)
	w.logger.ErrorContext(ctx, "a job killed its process", "job_id", event.JobID, "event_id", event.ID, "how", death.Text)
	return pipeline.Outcome{Failure: &dlq.Failure{
		Stage: dlq.StageDownstream, Class: dlq.ClassOOM, Error: text, ExitCode: &death.ExitCode, Tries: tries, OutcomeUnknown: true,
		Fingerprint: dlq.Fingerprint(dlq.StageDownstream, dlq.ClassOOM, event.Task, text), SrcCRS: event.ClaimedCRS,
	}}, nil
}

// RunAlone takes an event through the pipeline, in the process that Isolate started
// for it. An event that its job no longer owns is left alone.
func RunAlone(ctx context.Context, s *store.Store, c Config, eventID, jobID int64, tries int) (*Isolated, error) {
	sink, err := newSink(s, c)
	if err != nil {
		return nil, err
	}
	event, err := s.Event(ctx, eventID)
	if err != nil {
		return nil, err
	}
	if event.JobID != jobID || event.State == dlq.EventProcessed || event.State == dlq.EventDead || event.State == dlq.EventSplit {
		return &Isolated{}, nil
	}
	lost, err := readBytes(ctx, s, event)
	if err != nil {
		return nil, err
	}
	if lost != nil {
		return &Isolated{Failure: lostBytes(event, lost, tries)}, nil
	}
	stages := newStages(s, sink, c)
	out := stages.Run(ctx, event, tries)
	if out.Split {
		err := splitEvent(ctx, s, event, out)
		if err != nil && !errors.Is(err, dlq.ErrSuperseded) {
			return nil, err
		}
	}
	return &Isolated{Failure: out.Failure, Transient: out.Transient, RetryAfter: out.RetryAfter}, nil
}

// splitEvent replaces a collection by its features; an empty one is processed.
func splitEvent(ctx context.Context, s *store.Store, event *dlq.Event, out pipeline.Outcome) error {
	if len(out.Children) == 0 {
		return s.Complete(ctx, event, 1, nil)
	}
	return s.Split(ctx, event, 1, out.Children, out.InheritedCRS)
}

// mustRunAlone: its worker vanished too often, and there is a way.
func (w *eventWorker) mustRunAlone(job *river.Job[dlq.EventArgs]) bool {
	return w.isolate != nil && rescues(job.JobRow) >= isolateAfter
}

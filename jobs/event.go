package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/semaphore"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

// eventWorker takes an event through the pipeline and reports how it ended. What
// the letter needs of a failure travels in the job's output, for the trigger.
type eventWorker struct {
	river.WorkerDefaults[dlq.EventArgs]
	store    *store.Store
	pipeline *pipeline.Pipeline
	retry    retryPolicy
	maxTries int
	room     *semaphore.Weighted // for large bodies, in bytes
	roomMax  int64
	isolate  Isolate             // nil: there is no way to
	alone    *semaphore.Weighted // one at a time
	logger   *slog.Logger
}

// tryError is how the worker tells River that a try failed: its own error, set
// apart from those that River meets on its own.
type tryError struct{ text string }

func (e *tryError) Error() string { return e.text }

// handBackError is how the worker tells River that the process is stopping. River
// knows a job that was stopped by the context's error inside.
type handBackError struct{ err error }

func (e *handBackError) Error() string { return "handed back: " + e.err.Error() }
func (e *handBackError) Unwrap() error { return e.err }

func isOurs(err error) bool {
	var try *tryError
	var back *handBackError
	return errors.As(err, &try) || errors.As(err, &back)
}

// storePause is how long a job waits when the database did not let it begin.
const storePause = time.Second

// Work runs one try.
func (w *eventWorker) Work(ctx context.Context, job *river.Job[dlq.EventArgs]) error {
	event, err := w.store.Event(ctx, job.Args.EventID)
	switch {
	case errors.Is(err, dlq.ErrNotFound):
		return river.JobCancel(&tryError{"the event is gone"})
	case err != nil && ctx.Err() != nil:
		return &handBackError{ctx.Err()}
	case err != nil:
		w.logger.WarnContext(ctx, "event not read; waiting", "job_id", job.ID, "error", err)
		return river.JobSnooze(storePause) // no try: nothing was tried
	case event.JobID != job.ID, event.State == dlq.EventProcessed, event.State == dlq.EventSplit:
		return nil // ended, or another job's by now
	}
	if w.mustRunAlone(job) && event.State != dlq.EventDead {
		state := readTryState(job.Metadata)
		outcome, err := w.runAlone(ctx, event, state.Tries+1)
		if ctx.Err() != nil && handedBack(ctx) {
			return &handBackError{ctx.Err()}
		}
		if err != nil {
			w.logger.WarnContext(ctx, "event not run alone; waiting", "job_id", job.ID, "error", err)
			return river.JobSnooze(storePause)
		}
		return w.report(ctx, job, event, outcome, state.Redrive != nil)
	}
	release, err := w.readLarge(ctx, event)
	if err != nil {
		if ctx.Err() != nil {
			return &handBackError{ctx.Err()}
		}
		return river.JobSnooze(storePause)
	}
	defer release()
	state := readTryState(job.Metadata)
	redrive := state.Redrive != nil
	if event.State == dlq.EventDead {
		// Somebody retried the job by hand in River.
		if err := w.store.Revive(ctx, event); err != nil {
			return river.JobCancel(&tryError{"not taken up: " + err.Error()})
		}
		redrive = true
	}
	tries := state.Tries + 1
	if state.revived(event) {
		tries = 1
	}
	if corrupt := corruption(event, tries); corrupt != nil {
		w.logger.ErrorContext(ctx, corrupt.Error, "event_id", event.ID)
		return w.report(ctx, job, event, pipeline.Outcome{Failure: corrupt}, redrive)
	}
	outcome := w.pipeline.Run(ctx, event, tries)
	if outcome.Failure != nil {
		outcome.Failure.OutcomeUnknown = outcome.Failure.OutcomeUnknown || (state.Unknown && tries > 1)
	}
	return w.report(ctx, job, event, outcome, redrive)
}

// corruption is the failure of an event whose stored bytes are no longer those that
// were accepted, which are never processed; nil where they are.
func corruption(event *dlq.Event, tries int) *dlq.Failure {
	if sum := sha256.Sum256(event.Body); bytes.Equal(sum[:], event.SHA256) {
		return nil
	}
	const text = "the stored bytes do not match their SHA-256"
	return &dlq.Failure{
		Stage: dlq.StageEnvelope, Class: dlq.ClassUnknown, Error: text, Tries: tries,
		Fingerprint: dlq.Fingerprint(dlq.StageEnvelope, dlq.ClassUnknown, event.Task, text),
	}
}

// roomPause is how long a job waits for room before it lets others go first.
const roomPause = 5 * time.Second

// readLarge reads a body that Event left out, once there is room for it: a large
// geometry takes many times its bytes while it is worked on, here and in
// PostgreSQL. release gives the room back.
func (w *eventWorker) readLarge(ctx context.Context, event *dlq.Event) (release func(), err error) {
	if event.Size < store.LargeBody {
		return func() {}, nil
	}
	weight := min(event.Size, w.roomMax)
	waitCtx, cancel := context.WithTimeout(ctx, roomPause)
	defer cancel()
	if err := w.room.Acquire(waitCtx, weight); err != nil {
		return nil, err
	}
	release = func() { w.room.Release(weight) }
	event.Body, err = w.store.EventBody(ctx, event.ID)
	if err != nil && !errors.Is(err, dlq.ErrNotFound) {
		release()
		return nil, err
	}
	return release, nil
}

func (w *eventWorker) report(ctx context.Context, job *river.Job[dlq.EventArgs], event *dlq.Event, outcome pipeline.Outcome, redrive bool) error {
	switch {
	case outcome.Superseded:
		return nil
	case outcome.Split:
		return w.split(ctx, event, outcome)
	case outcome.Failure == nil:
		return nil
	case outcome.Transient && handedBack(ctx):
		return &handBackError{ctx.Err()}
	}
	failure := outcome.Failure
	final := !outcome.Transient || redrive || failure.Tries >= w.maxTries || ctxCancelledRemotely(ctx)
	// The job's context may be over; what is to be kept of it is not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := w.record(ctx, job, failure); err != nil {
		w.logger.WarnContext(ctx, "failure not recorded; trying again", "job_id", job.ID, "error", err)
		return river.JobSnooze(storePause)
	}
	w.logger.DebugContext(ctx, "try failed", "job_id", job.ID, "event_id", event.ID,
		"stage", failure.Stage, "class", failure.Class, "tries", failure.Tries, "final", final)
	if final {
		return river.JobCancel(&tryError{failure.Error})
	}
	if event.State == dlq.EventAccepted {
		if err := w.store.MarkRetrying(ctx, event); err != nil {
			w.logger.WarnContext(ctx, "event not marked retrying", "event_id", event.ID, "error", err)
		}
	}
	rememberTry(ctx, job, tryState{
		Tries: failure.Tries, RetryAfter: outcome.RetryAfter, Unknown: failure.OutcomeUnknown,
	})
	return &tryError{failure.Error}
}

func (w *eventWorker) split(ctx context.Context, event *dlq.Event, outcome pipeline.Outcome) error {
	err := splitEvent(ctx, w.store, event, outcome)
	switch {
	case err == nil, errors.Is(err, dlq.ErrSuperseded):
		return nil
	case handedBack(ctx):
		return &handBackError{ctx.Err()}
	}
	w.logger.WarnContext(ctx, "collection not split; waiting", "event_id", event.ID, "error", err)
	return river.JobSnooze(storePause)
}

// handedBack: the process is stopping, and the job is to run elsewhere.
func handedBack(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !ctxCancelledRemotely(ctx)
}

func ctxCancelledRemotely(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely)
}

// maxOutput bounds the output of a job: it lies in River's indexed metadata.
const maxOutput = 16 << 10

// record puts the failure where the capture trigger will find it. A geometry that
// would not fit goes to a row of its own first.
func (w *eventWorker) record(ctx context.Context, job *river.Job[dlq.EventArgs], failure *dlq.Failure) error {
	output, err := json.Marshal(failure)
	if err != nil {
		return err
	}
	if len(output) > maxOutput && failure.WKB != nil {
		if err := w.store.KeepGeometry(ctx, job.ID, failure.WKB); err != nil {
			return err
		}
		kept := *failure
		kept.WKB, kept.WKBStored = nil, true
		if output, err = json.Marshal(&kept); err != nil {
			return err
		}
	}
	if len(output) > maxOutput {
		short := *failure
		short.WKB, short.WKBStored, short.Stack = nil, failure.WKB != nil, ""
		if output, err = json.Marshal(&short); err != nil {
			return err
		}
	}
	return river.RecordOutput(ctx, json.RawMessage(output))
}

// Timeout leaves the job's to the client.
func (w *eventWorker) Timeout(*river.Job[dlq.EventArgs]) time.Duration { return 0 }

// NextRetry is when the next try is due.
func (w *eventWorker) NextRetry(job *river.Job[dlq.EventArgs]) time.Time {
	return w.retry.NextRetry(job.JobRow)
}

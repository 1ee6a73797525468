package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/semaphore"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
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
	// readTimeout is how long the bytes of an event may take.
	readTimeout time.Duration

	room    *semaphore.Weighted // for large bodies, in bytes
	roomMax int64
	isolate Isolate             // nil: there is no way to
	alone   *semaphore.Weighted // one at a time
	logger  *slog.Logger
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
	release, lost, err := w.readWithRoom(ctx, event)
	if err != nil {
		if ctx.Err() != nil {
			return &handBackError{ctx.Err()}
		}
		if !errors.Is(err, errNoRoom) {
			w.logger.WarnContext(ctx, "body not read; waiting", "job_id", job.ID, "error", err)
		}
		return river.JobSnooze(storePause) // no try: nothing was tried
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
	if lost != nil {
		w.logger.ErrorContext(ctx, lost.Error(), "event_id", event.ID)
		return w.report(ctx, job, event, pipeline.Outcome{Failure: lostBytes(event, lost, tries)}, redrive)
	}
	outcome := w.pipeline.Run(ctx, event, tries)
	if outcome.Failure != nil {
		outcome.Failure.OutcomeUnknown = outcome.Failure.OutcomeUnknown || (state.Unknown && tries > 1)
	}
	return w.report(ctx, job, event, outcome, redrive)
}

// readBytes gives an event its bytes, as they were accepted. lost says that they can't
// be had any more, or are others now; err that they can't be had yet.
func readBytes(ctx context.Context, s *store.Store, event *dlq.Event) (lost, err error) {
	if event.Body == nil {
		event.Body, err = s.EventBody(ctx, event.ID)
	}
	switch {
	case errors.Is(err, payload.ErrMissing):
		return payload.ErrMissing, nil
	case err != nil && !errors.Is(err, dlq.ErrNotFound):
		return nil, err
	}
	return dlq.CheckSHA256(event.Body, event.SHA256), nil
}

// lostBytes is the failure of an event whose bytes are lost, which no other try can
// mend.
func lostBytes(event *dlq.Event, lost error, tries int) *dlq.Failure {
	text := lost.Error()
	return &dlq.Failure{
		Stage: dlq.StageEnvelope, Class: dlq.ClassUnknown, Error: text, Tries: tries,
		Fingerprint: dlq.Fingerprint(dlq.StageEnvelope, dlq.ClassUnknown, event.Task, text),
	}
}

// roomPause is how long a job waits for room before it lets others go first.
const roomPause = 5 * time.Second

// hugeBody is from which weight on a body is not begun beside the garbage of another.
const hugeBody = 16 << 20

var errNoRoom = errors.New("no room for another large body")

// readWithRoom is readBytes once there is room for a large body: a large geometry
// takes many times its bytes while it is worked on, here and in PostgreSQL. release
// gives the room back.
func (w *eventWorker) readWithRoom(ctx context.Context, event *dlq.Event) (release func(), lost, err error) {
	release = func() {}
	if weight := w.weight(event); weight >= 2*store.LargeBody {
		waitCtx, cancel := context.WithTimeout(ctx, roomPause)
		defer cancel()
		if w.room.Acquire(waitCtx, weight) != nil {
			return nil, nil, errNoRoom
		}
		release = func() { w.room.Release(weight) }
		if weight >= hugeBody {
			runtime.GC() // what the one before left behind is as large
		}
	}
	// Well before the job's own timeout, which would be a try.
	readCtx, cancel := context.WithTimeout(ctx, w.readTimeout)
	defer cancel()
	if lost, err = readBytes(readCtx, w.store, event); err != nil {
		release()
		return nil, nil, err
	}
	return release, lost, nil
}

// weight is how much room the bytes of an event want, once decoded.
func (w *eventWorker) weight(event *dlq.Event) int64 {
	size := event.Size
	if pipeline.IsGzip(event.Headers["content-encoding"]) {
		size = w.roomMax // not read yet; it may decode to anything
		if event.Body != nil {
			size = pipeline.GunzipSize(event.Body, w.roomMax)
		}
	}
	return RoomOf(size, w.roomMax)
}

// RoomOf is how much of a room of max a body of so many bytes takes: twice as many, since a
// geometry takes ten times its text where its parts are many. The largest leave a quarter to
// those that are not, which would else wait for as long as it takes to check them.
func RoomOf(size, max int64) int64 { return min(2*size, max/4*3) }

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

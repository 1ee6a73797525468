// Package jobs runs events and upkeep as River jobs: client, workers, retry
// policy and periodic jobs.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/semaphore"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

// Config is how jobs are run.
type Config struct {
	Workers      int                 // jobs at once
	MaxTries     int                 // executions of an event before it is dead
	RetryBase    time.Duration       // the first pause between tries; doubled by each
	RetryMax     time.Duration       // the longest pause
	RescueAfter  time.Duration       // when a job whose worker vanished is taken up again
	KeyRetention time.Duration       // how long keys are kept after the end
	BodyMax      int64               // bytes of a body, also decoded
	LargeMax     int64               // bytes of all large bodies that are worked on at once
	Room         *semaphore.Weighted // of LargeMax, where others take from it too; nil: the workers' own
	StopTimeout  time.Duration       // for running jobs at a shutdown; then they are handed back

	// Isolate runs an event whose workers keep vanishing; nil: it runs like others.
	Isolate Isolate

	SinkURL     string // empty: the features table
	SinkSecret  string
	SinkTimeout time.Duration

	sink pipeline.Sink // in place of that of SinkURL, for tests
}

// attemptMargin is how many executions more than our tries River may start: those
// that end because their process died are no fault of the event.
const attemptMargin = 25

// MaxJobAttempts is River's max_attempts for a number of tries.
func MaxJobAttempts(tries int) int { return min(tries+attemptMargin, 30_000) }

// JobTimeout is how long a job may run: well inside the time after which it would
// be taken for lost.
func (c Config) JobTimeout() time.Duration {
	return min(time.Minute, c.RescueAfter*8/10)
}

// Client works jobs until it is stopped.
type Client struct {
	river *river.Client[pgx.Tx]
}

// New returns a client over River's own pool. The store's pool serves the jobs.
func New(pool *pgxpool.Pool, s *store.Store, c Config, logger *slog.Logger) (*Client, error) {
	sink, err := newSink(s, c)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	stages := newStages(s, sink, c)
	river.AddWorker(workers, &eventWorker{
		store: s, pipeline: stages,
		retry: retryPolicy{base: c.RetryBase, max: c.RetryMax}, maxTries: c.MaxTries, logger: logger,
		readTimeout: c.JobTimeout() / 2,
		room:        cmp.Or(c.Room, semaphore.NewWeighted(c.LargeMax)), roomMax: c.LargeMax,
		isolate: c.Isolate, alone: semaphore.NewWeighted(1),
	})
	addUpkeep(workers, s, c, logger)
	addLedger(workers, s, logger)
	addFeeders(workers, s)
	addExaminer(workers, s, stages)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID: clientID(),
		// River logs error texts, which may hold coordinates: from warnings on it
		// does not.
		Logger:                      slog.New(&seldom{Handler: atLeast{logger.Handler(), slog.LevelWarn}, said: &sync.Map{}}),
		Queues:                      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: c.Workers}},
		Workers:                     workers,
		FetchCooldown:               50 * time.Millisecond,
		FetchPollInterval:           100 * time.Millisecond, // jobs are inserted without a NOTIFY
		JobTimeout:                  c.JobTimeout(),
		RescueStuckJobsAfter:        c.RescueAfter,
		SoftStopTimeout:             c.StopTimeout,
		CompletedJobRetentionPeriod: 10 * time.Minute, // what became of an event, its own row tells
		ReindexerIndexNames:         reindexed(),
		RetryPolicy:                 retryPolicy{base: c.RetryBase, max: c.RetryMax},
		MaxAttempts:                 MaxJobAttempts(c.MaxTries),
		ErrorHandler:                errorHandler{logger},
		Plugins:                     []rivertype.Plugin{&cleanErrors{}},
		PeriodicJobs:                periodicUpkeep(),
	})
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	return &Client{client}, nil
}

// clientID names this process where River says who works on a job: host, process
// and when it began.
func clientID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	const maxHost = 60 // River takes a hundred characters
	return fmt.Sprintf("%.*s-%d-%s", maxHost, host, os.Getpid(), time.Now().UTC().Format("20060102T150405.000"))
}

// reindexed are River's indexes without those that capture.sql drops.
func reindexed() []string {
	return slices.DeleteFunc(river.ReindexerIndexNamesDefault(), func(name string) bool {
		return name == "river_job_args_index" || name == "river_job_metadata_index"
	})
}

func newStages(s *store.Store, sink pipeline.Sink, c Config) *pipeline.Pipeline {
	return &pipeline.Pipeline{PostGIS: s, Sink: sink, CheckTimeout: c.JobTimeout() / 2, MaxDecoded: c.BodyMax}
}

// Start begins to work jobs, in the background.
func (c *Client) Start(ctx context.Context) error {
	if err := c.river.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start river: %w", err)
	}
	return nil
}

// Stop lets running jobs finish, hands back those that don't in time, and
// returns when all are reported.
func (c *Client) Stop(ctx context.Context) error {
	if err := c.river.Stop(ctx); err != nil {
		return fmt.Errorf("stop river: %w", err)
	}
	return nil
}

// atLeast is a handler that drops what is below its level.
type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// seldom says the same thing once in sayEvery: while the database is away River
// complains many times a second.
type seldom struct {
	slog.Handler
	said *sync.Map // message to time.Time
}

const sayEvery = 10 * time.Second

func (h *seldom) Handle(ctx context.Context, r slog.Record) error {
	if last, ok := h.said.Load(r.Message); ok && r.Time.Sub(last.(time.Time)) < sayEvery {
		return nil
	}
	h.said.Store(r.Message, r.Time)
	return h.Handler.Handle(ctx, r)
}

func (h *seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &seldom{h.Handler.WithAttrs(attrs), h.said}
}

func (h *seldom) WithGroup(name string) slog.Handler {
	return &seldom{h.Handler.WithGroup(name), h.said}
}

// cleanErrors makes every error's text fit for River's jsonb: one NUL would make
// its completer try the whole batch again for ever.
type cleanErrors struct{ river.MiddlewareDefaults }

func (*cleanErrors) Work(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
	err := work(ctx)
	if err == nil {
		return nil
	}
	if text := dlq.CleanText(err.Error(), dlq.MaxError); text != err.Error() {
		return &cleanError{text, err}
	}
	return err
}

type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.err }

// errorHandler ends jobs that failed outside of our worker, such as one whose
// arguments can't be read or whose kind is none of ours: another try would fail the
// same way.
type errorHandler struct{ logger *slog.Logger }

func (h errorHandler) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	// A kind that no worker knows would be tried for hours; its event is swept up.
	var unknown *rivertype.UnknownJobKindError
	if errors.As(err, &unknown) || (!isOurs(err) && job.Kind == dlq.JobKind) {
		h.logger.ErrorContext(ctx, "job failed outside of the pipeline", "job_id", job.ID)
		return &river.ErrorHandlerResult{SetCancelled: true}
	}
	return nil
}

func (h errorHandler) HandlePanic(ctx context.Context, job *rivertype.JobRow, _ any, trace string) *river.ErrorHandlerResult {
	h.logger.ErrorContext(ctx, "job panicked", "job_id", job.ID, "kind", job.Kind, "trace", trace)
	return &river.ErrorHandlerResult{SetCancelled: job.Kind == dlq.JobKind}
}

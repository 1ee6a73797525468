package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"geodlq/internal/door"
	"geodlq/internal/payload"
	"geodlq/internal/spool"
	"geodlq/internal/store"
	"geodlq/jobs"
	"geodlq/web"
)

// Shutdown: requests and jobs under way may finish; what does not is cut off or
// handed back.
const (
	requestGrace = 10 * time.Second
	jobGrace     = 10 * time.Second
	stopTimeout  = 30 * time.Second
)

func runServe(ctx context.Context, p *process) error { return p.serve(ctx, true, true, nil, nil) }
func runWeb(ctx context.Context, p *process) error   { return p.serve(ctx, true, false, nil, nil) }
func runWork(ctx context.Context, p *process) error  { return p.serve(ctx, false, true, nil, nil) }

// serve runs until ctx ends. ready, if any, is called once requests are answered,
// with the address.
func (p *process) serve(ctx context.Context, withWeb, withJobs bool, demo web.Demo, ready func(ctx context.Context, url string)) (err error) {
	if len(p.args) > 0 {
		return fmt.Errorf("unexpected argument %q", p.args[0])
	}
	logger, err := p.logger()
	if err != nil {
		return err
	}
	var listener net.Listener
	if withWeb {
		// Before the database is started: a port that is taken is found out at once.
		if listener, err = net.Listen("tcp", p.config.addr); err != nil {
			return fmt.Errorf("%w; choose another address with -addr or GEODLQ_ADDR", err)
		}
		defer listener.Close()
	}
	limitMemory(int64(p.config.inFlightMax))
	signal.Ignore(syscall.SIGXFSZ) // a file that may not grow is an error of the write
	db, err := connect(ctx, p.config, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	defer db.watch(ctx, p.config, logger)()
	bucket, err := p.config.openBucket(ctx)
	if err != nil {
		return err
	}
	defer bucket.Close()
	s := store.New(db.store, bucket, p.config.rules())
	away := db.ensure(ctx)
	if away != nil && !store.Unavailable(away) {
		return away
	}
	replicated := withWeb && p.config.readURL != ""
	if replicated {
		if err := p.config.useReplica(ctx, s, logger); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.runFolder(ctx, db, s, logger) })
	if replicated {
		group.Go(func() error { s.WatchReplica(ctx); return nil })
	}
	if !withWeb {
		if away != nil {
			logger.Error("the database is away; waiting for it", "error", away)
		}
		group.Go(func() error { return p.runJobs(ctx, db, s, nil, logger) })
		return group.Wait()
	}
	// What the spool loads and what workers take up is in memory at the same time.
	room := semaphore.NewWeighted(p.config.jobs().LargeMax)
	options := p.config.spool(logger)
	options.Room = roomFor(room, p.config.jobs().LargeMax)
	held, err := spool.Open(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	front := door.New(s, held, logger)
	if away != nil {
		front.Away(away)
	}
	group.Go(func() error { return p.runLoader(ctx, db, front) })
	group.Go(func() error { db.hangs.Run(ctx, front.Away); return nil })
	if withJobs {
		group.Go(func() error { return p.runJobs(ctx, db, s, room, logger) })
	}
	server := web.New(s, front, web.Config{
		BodyMax: int64(p.config.bodyMax), InFlightMax: int64(p.config.inFlightMax), Version: version(), MapStyle: p.config.mapStyle,
	}, demo, logger)
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(p.stdout, "geodlq listens on %s\n", url)
	if ready != nil {
		go ready(ctx, url)
	}
	group.Go(func() error { return server.Serve(ctx, listener, requestGrace) })
	return group.Wait()
}

// runLoader loads the spool whenever the database is there, until ctx ends.
func (p *process) runLoader(ctx context.Context, db *database, front *door.Door) error {
	if err := db.await(ctx); err != nil {
		return ignoreCanceled(ctx, err)
	}
	front.Run(ctx)
	return nil
}

// roomFor takes what a line wants of a room of max.
func roomFor(room *semaphore.Weighted, max int64) func(context.Context, int) (func(), error) {
	return func(ctx context.Context, bytes int) (func(), error) {
		weight := jobs.RoomOf(int64(bytes), max)
		if err := room.Acquire(ctx, weight); err != nil {
			return nil, err
		}
		runtime.GC() // what was there before left as much behind
		return func() { room.Release(weight) }, nil
	}
}

// runJobs works jobs, once the database is there, until ctx ends. room is that of large
// bodies; nil: the workers' own.
func (p *process) runJobs(ctx context.Context, db *database, s *store.Store, room *semaphore.Weighted, logger *slog.Logger) error {
	client, err := p.startJobs(ctx, db, s, room, logger)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	logger.Info("working jobs", "workers", p.config.jobs().Workers)
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return client.Stop(ctx)
}

// startJobs begins again where the database went away between the asking and the
// beginning.
func (p *process) startJobs(ctx context.Context, db *database, s *store.Store, room *semaphore.Weighted, logger *slog.Logger) (*jobs.Client, error) {
	config := p.config.jobs()
	config.Room = room
	config.Isolate = p.config.isolate(db.url)
	if err := db.await(ctx); err != nil {
		return nil, err
	}
	for {
		client, err := jobs.New(db.river, s, config, logger)
		if err != nil {
			return nil, err
		}
		if err = client.Start(ctx); err == nil || !store.Unavailable(err) {
			return client, err
		}
		if err := pause(ctx, awaitEvery); err != nil {
			return nil, err
		}
	}
}

// ignoreCanceled: who was told to stop did not fail.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// limitMemory makes the garbage collector keep to what the bodies in flight may
// take, some more for what is made of them, and 32 MiB; far below that it is seldom
// needed. GOMEMLIMIT and GOGC say otherwise.
func limitMemory(inFlight int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(inFlight + inFlight/2 + 32<<20)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}

func (p *process) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.config.logLevel)); err != nil {
		return nil, fmt.Errorf("GEODLQ_LOG_LEVEL: %q is none of debug, info, warn, error", p.config.logLevel)
	}
	return slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level})), nil
}

// openBucket opens the bucket of large bodies.
func (c config) openBucket(ctx context.Context) (*payload.Bucket, error) {
	return payload.Open(ctx, c.blobURL, filepath.Join(c.data, "blobs"))
}

func (c config) rules() store.Rules {
	return store.Rules{
		DedupeWindow: time.Duration(c.dedupeWindow), MaxJobAttempts: jobs.MaxJobAttempts(c.maxAttempts),
		RedriveCap: c.redriveCap, RedriveBackoff: time.Duration(c.redriveBackoff), UndoWindow: time.Duration(c.undoWindow),
		ReadTimeout: time.Duration(c.readTimeout),
		InlineMax:   int(c.inlineMax),
	}
}

// spoolDir is where the spool lies under the data directory.
const spoolDir = "spool"

func (c config) spool(logger *slog.Logger) spool.Options {
	return spool.Options{
		Dir: filepath.Join(c.data, spoolDir), Max: int64(c.spoolMax), DedupeWindow: time.Duration(c.dedupeWindow), Logger: logger,
	}
}

// Jobs at once where none are configured. Jobs spend their time in batches that they
// share, so many of them fill these; a sink that is posted to has to bear each.
const (
	tableWorkers   = 1000
	webhookWorkers = 64
)

func (c config) jobs() jobs.Config {
	workers := c.workers
	switch {
	case workers > 0:
	case c.sinkURL != "":
		workers = webhookWorkers
	default:
		workers = tableWorkers
	}
	return jobs.Config{
		Workers: workers, MaxTries: c.maxAttempts,
		RetryBase: time.Duration(c.retryBase), RetryMax: time.Duration(c.retryMax),
		RescueAfter: time.Duration(c.rescueAfter), KeyRetention: time.Duration(c.keyRetention),
		BodyMax: int64(c.bodyMax), LargeMax: int64(c.inFlightMax) / 4, StopTimeout: jobGrace,
		SinkURL: c.sinkURL, SinkSecret: c.sinkSecret, SinkTimeout: time.Duration(c.sinkTimeout),
	}
}

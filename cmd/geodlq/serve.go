package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"geodlq/internal/payload"
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
	db, err := openDatabase(ctx, p.config, logger)
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
	if withJobs {
		config := p.config.jobs()
		config.Isolate = p.config.isolate(db.url)
		client, err := jobs.New(db.river, s, config, logger)
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			err = errors.Join(err, client.Stop(ctx))
		}()
	}
	if !withWeb {
		logger.Info("working jobs", "workers", p.config.workers)
		<-ctx.Done()
		return nil
	}
	server := web.New(s, web.Config{
		BodyMax: int64(p.config.bodyMax), InFlightMax: int64(p.config.inFlightMax), Version: version(), MapStyle: p.config.mapStyle,
	}, demo, logger)
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(p.stdout, "geodlq listens on %s\n", url)
	if ready != nil {
		go ready(ctx, url)
	}
	return server.Serve(ctx, listener, requestGrace)
}

// limitMemory makes the garbage collector keep to what the bodies in flight may
// take and as much again, unless GOMEMLIMIT says otherwise.
func limitMemory(inFlight int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(2*inFlight + 64<<20)
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
		InlineMax: int(c.inlineMax),
	}
}

func (c config) jobs() jobs.Config {
	return jobs.Config{
		Workers: c.workers, MaxTries: c.maxAttempts,
		RetryBase: time.Duration(c.retryBase), RetryMax: time.Duration(c.retryMax),
		RescueAfter: time.Duration(c.rescueAfter), KeyRetention: time.Duration(c.keyRetention),
		BodyMax: int64(c.bodyMax), LargeMax: int64(c.inFlightMax) / 4, StopTimeout: jobGrace,
		SinkURL: c.sinkURL, SinkSecret: c.sinkSecret, SinkTimeout: time.Duration(c.sinkTimeout),
	}
}

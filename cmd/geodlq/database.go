package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/localpg"
	"geodlq/internal/store"
	"geodlq/migrations"
)

// Connections: the store's serve requests and running jobs, River's its own
// bookkeeping.
const (
	storeConns = 24
	riverConns = 8
)

// database is a migrated database, ours or the one that DATABASE_URL names.
type database struct {
	store   *pgxpool.Pool
	hangs   *store.Watch // over the store's pool
	river   *pgxpool.Pool
	cluster *localpg.Cluster // nil with DATABASE_URL
	url     string
	ensured atomic.Bool // it was there, and its schema is what it should be
}

// openDatabase connects and brings the schema up if it is behind.
func openDatabase(ctx context.Context, c config, logger *slog.Logger) (*database, error) {
	db, err := connect(ctx, c, logger)
	if err != nil {
		return nil, err
	}
	if err := db.ensure(ctx); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

// connect starts a private cluster, if there is to be one, and makes the pools. A
// database that is away is no error yet.
func connect(ctx context.Context, c config, logger *slog.Logger) (*database, error) {
	db := &database{url: c.databaseURL}
	var err error
	if db.url == "" {
		db.cluster, err = localpg.Start(ctx, localpg.Options{Dir: c.data, Logger: logger})
		if err != nil {
			return nil, err
		}
		db.url = db.cluster.URL()
	}
	if db.store, db.hangs, err = store.ConnectWatched(ctx, db.url, storeConns); err == nil {
		db.river, err = store.ConnectRiver(ctx, db.url, riverConns)
	}
	if err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

// useReplica lets a store read on the replica that DATABASE_READ_URL names.
func (c config) useReplica(ctx context.Context, s *store.Store, logger *slog.Logger) error {
	newest, err := migrations.Newest()
	if err != nil {
		return err
	}
	err = s.UseReplica(ctx, store.ReplicaConfig{
		URL: c.readURL, MaxConns: storeConns, LagMax: time.Duration(c.readLagMax), Schema: newest, Logger: logger,
	})
	if err != nil {
		return fmt.Errorf("DATABASE_READ_URL: %w", err)
	}
	return nil
}

// ensureTimeout bounds the question whether the database is there.
const ensureTimeout = 10 * time.Second

// ensure brings the schema up if it is behind. It refuses a database whose capture
// triggers are gone: failures would be lost. See store.Unavailable for one that is
// away.
func (db *database) ensure(ctx context.Context) error {
	pingCtx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	if err := db.store.Ping(pingCtx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if err := migrations.Ensure(ctx, db.store); err != nil {
		return err
	}
	db.ensured.Store(true)
	return nil
}

// awaitEvery is how often a database that was away at the start is asked again.
const awaitEvery = time.Second

// await returns once the database was ensured, for as long as it is away.
func (db *database) await(ctx context.Context) error {
	for !db.ensured.Load() {
		err := db.ensure(ctx)
		if err == nil || !store.Unavailable(err) {
			return err
		}
		if err := pause(ctx, awaitEvery); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// watchEvery is how often a private cluster is looked after.
const watchEvery = 2 * time.Second

// watch starts a private cluster again that died under us. It returns how to stop
// watching.
func (db *database) watch(ctx context.Context, c config, logger *slog.Logger) (stop func()) {
	if db.cluster == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(watchEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if db.cluster.Alive() {
				continue
			}
			logger.Warn("private PostgreSQL is gone; starting it again")
			again, err := localpg.Start(ctx, localpg.Options{Dir: c.data, Logger: logger})
			if err != nil {
				logger.Error("private PostgreSQL did not start", "error", err)
				continue
			}
			// Our own membership keeps it up from here on.
			if err := again.Close(); err != nil {
				logger.Warn("private PostgreSQL", "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// close leaves the database; the last process out stops a private cluster.
func (db *database) close() error {
	if db.store != nil {
		db.store.Close()
	}
	if db.river != nil {
		db.river.Close()
	}
	if db.cluster != nil {
		return db.cluster.Close()
	}
	return nil
}

// openStore opens the store of a subcommand that neither takes nor gives out bodies;
// close lets go of its database.
func (p *process) openStore(ctx context.Context) (s *store.Store, close func() error, err error) {
	logger, err := p.logger()
	if err != nil {
		return nil, nil, err
	}
	db, err := openDatabase(ctx, p.config, logger)
	if err != nil {
		return nil, nil, err
	}
	return store.New(db.store, nil, p.config.rules()), db.close, nil
}

// Package pgtest gives each test a migrated database of its own, on a private
// PostGIS cluster that all test binaries of a run share.
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/localpg"
	"geodlq/internal/store"
	"geodlq/migrations"
)

// cluster starts or joins the shared cluster once a process. It is left when the
// process ends: the locks that say who is in go with it.
var cluster = sync.OnceValues(func() (*localpg.Cluster, error) {
	dir := os.Getenv("GEODLQ_TEST_DATA")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("geodlq-test-%d", os.Getuid()))
	}
	return localpg.Start(context.Background(), localpg.Options{
		Dir: dir, Logger: slog.New(slog.DiscardHandler),
		// Only speed: what a test reads back is in memory either way.
		Settings: map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"},
	})
})

// Main runs a package's tests and leaves the cluster, which the last one out
// stops: func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	if started.Load() {
		if c, err := cluster(); err == nil {
			if err := c.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "pgtest:", err)
			}
		}
	}
	return code
}

var (
	started atomic.Bool
	serial  atomic.Int64
)

// URL is the connection string of a fresh database, migrated, which goes with the
// test.
func URL(t testing.TB) string {
	t.Helper()
	started.Store(true)
	c, err := cluster()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	template, err := template()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name := fmt.Sprintf("t_%d_%d_%d", os.Getpid(), time.Now().UnixNano()%1_000_000_000, serial.Add(1))
	if err := admin(c, fmt.Sprintf("create database %s template %s", name, template)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := admin(c, "drop database if exists "+name+" with (force)"); err != nil {
			t.Logf("pgtest: %v", err)
		}
	})
	return c.URLFor(name)
}

// Pool is a pool on a fresh database.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := store.Connect(context.Background(), URL(t), 16)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// template makes this process's template database once: a process that was killed
// while it made one must not leave a half of it to others.
var template = sync.OnceValues(func() (string, error) {
	c, err := cluster()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("template_%d_%d", os.Getpid(), time.Now().UnixNano())
	if err := dropStale(c); err != nil {
		return "", err
	}
	if err := admin(c, "create database "+name); err != nil {
		return "", err
	}
	pool, err := store.Connect(context.Background(), c.URLFor(name), 4)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	return name, migrations.Up(context.Background(), pool)
})

// dropStale drops the databases of processes that are gone.
func dropStale(c *localpg.Cluster) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.URLFor("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "select datname from pg_database where datname like 't\\_%' or datname like 'template\\_%'")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		var pid int
		if _, err := fmt.Sscanf(name[strings.IndexByte(name, '_')+1:], "%d", &pid); err != nil || alive(pid) {
			continue
		}
		// Two processes may drop the same one at once.
		_, _ = conn.Exec(ctx, "drop database if exists "+name+" with (force)")
	}
	return nil
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

func admin(c *localpg.Cluster, sql string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.URLFor("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

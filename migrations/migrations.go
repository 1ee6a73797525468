// Package migrations brings a PostgreSQL database to the schema that geodlq
// needs: PostGIS, River's tables, ours, and the capture triggers on River's.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/tern/v2/migrate"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed *.sql
var files embed.FS

//go:embed capture.sql
var capture string

// triggers are what capture can't do without.
var triggers = []string{"geodlq_capture_update", "geodlq_capture_insert", "geodlq_capture_delete"}

// lockID is the advisory lock that one migration at a time holds.
const lockID = 0x67656f646c71 // "geodlq"

var (
	// ErrNoPostGIS: the extension is missing and may not be created.
	ErrNoPostGIS = errors.New("the database lacks PostGIS")
	// ErrNotMigrated: tables or triggers are missing.
	ErrNotMigrated = errors.New("the database is not migrated")
)

// Up migrates the database to the newest version. Processes that call it at once
// wait for each other.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", lockID); err != nil {
		return fmt.Errorf("migrate: lock: %w", err)
	}
	defer conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", lockID)

	if err := ensurePostGIS(ctx, conn.Conn()); err != nil {
		return err
	}
	river, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	if err := upOurs(ctx, conn.Conn()); err != nil {
		return err
	}
	// The comment tells which capture.sql the functions are of; see Ensure.
	install := fmt.Sprintf("%s\ncomment on function geodlq_on_job() is '%s';", capture, captureHash())
	if _, err := conn.Exec(ctx, install); err != nil {
		return fmt.Errorf("install the capture triggers: %w", err)
	}
	return nil
}

func captureHash() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(capture))) }

// Ensure migrates a database that is behind this program, and then checks it. One
// that is at the newest version but lost its triggers is refused: somebody should
// know that failures went uncaptured meanwhile.
func Ensure(ctx context.Context, pool *pgxpool.Pool) error {
	newest, err := isNewest(ctx, pool)
	if err != nil {
		return err
	}
	if !newest {
		if err := Up(ctx, pool); err != nil {
			return err
		}
	}
	return Check(ctx, pool)
}

func isNewest(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var versioned, installed bool
	err := pool.QueryRow(ctx, `select to_regclass('public.geodlq_version') is not null,
		coalesce(obj_description(to_regproc('geodlq_on_job')), '') = $1`, captureHash()).Scan(&versioned, &installed)
	if err != nil {
		return false, fmt.Errorf("schema version: %w", err)
	}
	if !versioned || !installed {
		return false, nil
	}
	newest, err := Newest()
	if err != nil {
		return false, err
	}
	var version int
	if err := pool.QueryRow(ctx, "select version from public.geodlq_version").Scan(&version); err != nil {
		return false, fmt.Errorf("schema version: %w", err)
	}
	return version >= newest, nil
}

// Newest is the version that Up brings a database to; geodlq_version holds it.
func Newest() (int, error) {
	paths, err := migrate.FindMigrations(files)
	if err != nil {
		return 0, fmt.Errorf("schema version: %w", err)
	}
	return len(paths), nil
}

func upOurs(ctx context.Context, conn *pgx.Conn) error {
	m, err := migrate.NewMigrator(ctx, conn, "public.geodlq_version")
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := m.LoadMigrations(files); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := m.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// ensurePostGIS creates the extension if it is missing and may be created.
func ensurePostGIS(ctx context.Context, conn *pgx.Conn) error {
	var have bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_extension where extname = 'postgis')").Scan(&have); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if have {
		return nil
	}
	_, err := conn.Exec(ctx, "create extension if not exists postgis")
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr) && pgErr.Code == "42501": // insufficient_privilege
		return fmt.Errorf("%w, and this user may not create it: have a superuser run CREATE EXTENSION postgis", ErrNoPostGIS)
	case errors.As(err, &pgErr) && (pgErr.Code == "58P01" || pgErr.Code == "0A000"): // undefined_file, feature_not_supported
		return fmt.Errorf("%w, and its server has no package of it: on Debian, apt-get install postgresql-<version>-postgis-3", ErrNoPostGIS)
	}
	return fmt.Errorf("create extension postgis: %w", err)
}

// Check returns ErrNotMigrated, with what is missing, unless the tables and the
// capture triggers stand. Without the triggers failures would be lost.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	const advice = "run: geodlq migrate"
	var tables bool
	err := pool.QueryRow(ctx, `select to_regclass('events') is not null and to_regclass('dead_letters') is not null
		and to_regclass('river_job') is not null`).Scan(&tables)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	if !tables {
		return fmt.Errorf("%w: tables are missing; %s", ErrNotMigrated, advice)
	}
	var missing []string
	err = pool.QueryRow(ctx, `select coalesce(array_agg(name), '{}') from unnest($1::text[]) name
		where not exists (select from pg_trigger t where t.tgname = name
			and t.tgrelid = 'river_job'::regclass and t.tgenabled in ('O', 'A'))`, triggers).Scan(&missing)
	if err != nil {
		return fmt.Errorf("check the capture triggers: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: the capture triggers %v on river_job are missing or disabled; %s", ErrNotMigrated, missing, advice)
	}
	return nil
}

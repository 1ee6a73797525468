package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// asked notes what was asked of PostgreSQL.
type asked struct {
	mu      sync.Mutex
	queries []query
}

type query struct {
	sql  string
	args []any
}

func (a *asked) note(sql string, args []any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queries = append(a.queries, query{sql, args})
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	a.note(q.SQL, q.Args)
	return ctx
}
func (a *asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (a *asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (a *asked) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	a.note(q.SQL, q.Args)
}
func (a *asked) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// least is the shortest of some runs: what else the machine does makes others longer.
func least(t *testing.T, runs int, fn func() error) time.Duration {
	t.Helper()
	var shortest time.Duration
	for i := range runs {
		began := time.Now()
		if err := fn(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); i == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest
}

// plainWorld is the world as a tile server draws it: every letter a point.
const plainWorld = `select ST_AsMVT(t, 'letters', 4096, 'geom') from (
	select ST_AsMVTGeom(ST_Transform(d.anchor, 3857), ST_TileEnvelope(0, 0, 0), 4096, 64, true) as geom, d.id, d.stage, d.class, d.status
	from dead_letters d where d.status in ('pending', 'redriving', 'quarantined')
		and d.anchor && ST_Transform(ST_TileEnvelope(0, 0, 0), 4326)) t`

// TestTheMapKeepsItsPaceAsItGrows is the quick form of the benchmark of the map
// (cmd/geodlq, BenchmarkMap): the ratios that hold on any machine.
func TestTheMapKeepsItsPaceAsItGrows(t *testing.T) {
	if testing.Short() {
		t.Skip("seeds 200,000 letters")
	}
	pool := pgtest.Pool(t)
	ctx := t.Context()
	world := func() error {
		_, _, err := store.New(pool, nil, store.Rules{}).Tile(ctx, dlq.Filter{}, dlq.Tile{}) // nothing kept
		return err
	}
	seed := func(n int) {
		s := store.New(pool, nil, store.Rules{})
		if err := s.Seed(ctx, n); err != nil {
			t.Fatal(err)
		}
		fold(t, s)
	}
	seed(50_000)
	small := least(t, 15, world)
	seed(150_000)
	large := least(t, 15, world)
	plain := least(t, 3, func() error {
		_, err := pool.Exec(ctx, plainWorld)
		return err
	})
	t.Logf("world tile of 200,000: plain ST_AsMVT %v, cold %v (%.0f×); of 50,000 %v (growth %.1f×)",
		plain, large, plain.Seconds()/large.Seconds(), small, large.Seconds()/small.Seconds())
	if ratio := plain.Seconds() / large.Seconds(); ratio < 20 {
		t.Errorf("the world tile is %.1f× as fast as plain ST_AsMVT, want 20× at least", ratio)
	}
	if growth := large.Seconds() / small.Seconds(); growth > 3 {
		t.Errorf("the world tile of four times as many letters takes %.1f× as long", growth)
	}
	wantNoScan(t, pool)
}

// wantNoScan asks for all that the page shows, and has the plan of each query told:
// none may read all letters.
func wantNoScan(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	config := pool.Config()
	noted := &asked{}
	config.ConnConfig.Tracer = noted
	traced, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer traced.Close()
	s := store.New(traced, nil, store.Rules{})
	week := time.Now().Add(-7*24*time.Hour - 1500*time.Millisecond)
	for _, f := range []dlq.Filter{
		{}, {Since: &week}, {Sources: []string{"buoy-17"}, Since: &week}, {Classes: []dlq.Class{dlq.ClassOOM}},
		{Classes: []dlq.Class{dlq.ClassOOM}, Sources: []string{"buoy-17"}, Stages: []dlq.Stage{dlq.StageDownstream}},
		{Statuses: []dlq.Status{dlq.StatusReplayed}}, {Statuses: dlq.Statuses},
	} {
		for _, tile := range []dlq.Tile{{}, {Z: 4, X: 8, Y: 5}, {Z: 9, X: 259, Y: 176}, {Z: 11, X: 1037, Y: 704}, {Z: 16, X: 33191, Y: 22545}} {
			if _, _, err := s.Tile(ctx, f, tile); err != nil {
				t.Fatal(err)
			}
		}
		page, _, err := s.CountedLetters(ctx, f, 50)
		if err != nil {
			t.Fatal(err)
		}
		if page.Next != nil {
			if _, err := s.Letters(ctx, f, page.Next, 50); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range []error{second(s.Stats(ctx, f)), second(s.Charts(ctx, f)), second(s.Depth(ctx))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	plans := 0
	for _, q := range noted.queries {
		if !strings.HasPrefix(strings.TrimSpace(q.sql), "select") || !strings.Contains(q.sql, "dead_letters") {
			continue
		}
		rows, _ := pool.Query(ctx, "explain "+q.sql, q.args...)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("explain %s: %v", q.sql, err)
		}
		if plans++; strings.Contains(strings.Join(plan, "\n"), "Seq Scan on dead_letters") {
			t.Errorf("all letters are read:\n%s\n%s", q.sql, strings.Join(plan, "\n"))
		}
	}
	if plans < 50 {
		t.Errorf("%d plans", plans)
	}
}

func second[T any](_ T, err error) error { return err }

// Among thousands of sources, few are asked when their letters failed: those that may
// have been the first or the last of a cause, a stage, a class or a status.
func TestFewOfManyFacetsAreLookedUp(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	tracer := &asked{}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const sources = 5000
	_, err = pool.Exec(t.Context(), `
		insert into dead_letters (work_key, kind, source, task, stage, class, error, fingerprint, located_by, failed_at)
		select gen_random_uuid()::text, 'event', 'source ' || i, '', 'crs', 'unknown', 'error', 'cause ' || i % 3, 'none',
			'2026-03-01 12:00+00'::timestamptz - random() * interval '60 days' from generate_series(1, $1::int) i`, sources)
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(pool, nil, store.Rules{})
	fold(t, s)
	tracer.queries = nil
	if _, err := s.Stats(t.Context(), dlq.Filter{}); err != nil {
		t.Fatal(err)
	}
	lookedUp, lookups := 0, 0
	for _, q := range tracer.queries {
		if strings.Contains(q.sql, "z.failed_at") {
			lookups++
			lookedUp += len(q.args[0].(pgx.NamedArgs)["facets"].([]int64))
		}
	}
	if lookups == 0 || lookups > 10 || lookedUp > sources/10 {
		t.Errorf("%d facets of %d were looked up, in %d goes", lookedUp, sources, lookups)
	}
}

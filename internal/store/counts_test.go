package store_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// randomLetters inserts letters of few names, all over the world and over weeks,
// some of them without a place or of one moment.
func randomLetters(t testing.TB, pool *pgxpool.Pool, r *rand.Rand, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		insert into dead_letters (work_key, kind, source, task, stage, class, status, error, fingerprint, attempts, anchor, located_by, failed_at)
		select gen_random_uuid()::text, 'event', (array['a', 'a b', 'b'])[1 + floor(random() * 3)], (array['', 'b', 'b c'])[1 + floor(random() * 3)],
			(array['parse', 'validate', 'crs'])[1 + floor(random() * 3)], (array['oom', 'unknown', 'crs_mismatch', 'invalid_geometry'])[1 + floor(random() * 4)],
			(array['pending', 'pending', 'quarantined', 'replayed', 'abandoned'])[1 + floor(random() * 5)], 'error ' || i, 'cause ' || floor(random() * 5),
			1 + floor(power(random(), 4) * 9), p.anchor, case when p.anchor is null then 'none' else (array['geometry', 'guess'])[1 + floor(random() * 2)] end,
			case when i % 7 = 0 then timestamptz '2026-03-01 10:00:00.25+00' else '2026-03-01 12:00+00'::timestamptz - power(random(), 3) * $2::interval end
		from generate_series(1, $1::int) i
		cross join lateral (select case when i % 5 > 0 then
			ST_SetSRID(ST_MakePoint(round((random() * 360 - 180)::numeric, (i % 4) - 1), 85 * (random() * 2 - 1) * random()), 4326) end as anchor) p`,
		n, time.Duration(1+r.IntN(60*24))*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
}

func randomFilter(r *rand.Rand) dlq.Filter {
	var f dlq.Filter
	maybe := func(p float64, do func()) {
		if r.Float64() < p {
			do()
		}
	}
	maybe(0.3, func() { f.Stages = some(r, dlq.Stages[1:4]) })
	maybe(0.3, func() { f.Classes = some(r, dlq.Classes) })
	maybe(0.4, func() { f.Statuses = some(r, dlq.Statuses) })
	maybe(0.3, func() { f.Sources = some(r, []string{"a", "a b", "b", "none"}) })
	maybe(0.2, func() { f.Tasks = some(r, []string{"b", "b c"}) })
	maybe(0.2, func() { f.Groups = some(r, []string{"cause 0", "cause 1", "cause 2"}) })
	maybe(0.1, func() { f.LocatedBy = some(r, dlq.LocatedBys) })
	maybe(0.1, func() { located := r.IntN(2) == 0; f.Located = &located })
	moment := func() *time.Time {
		grain := []time.Duration{time.Hour, time.Minute, time.Second, time.Microsecond}[r.IntN(4)]
		at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(-time.Duration(r.Float64() * r.Float64() * float64(40*24*time.Hour))).Truncate(grain)
		if r.IntN(2) == 0 { // around what many letters have
			at = time.Date(2026, 3, 1, 10, 0, 0, 250_000_000, time.UTC).Add(time.Duration(r.IntN(3)-1) * time.Microsecond)
		}
		return &at
	}
	maybe(0.4, func() { f.Since = moment() })
	maybe(0.3, func() { f.Until = moment() })
	if f.Since != nil && f.Until != nil && !f.Since.Before(*f.Until) {
		f.Until = nil
	}
	return f
}

func some[T any](r *rand.Rand, all []T) []T {
	var out []T
	for _, i := range r.Perm(len(all))[:1+r.IntN(2)] {
		out = append(out, all[i])
	}
	return out
}

// change does what happens to letters: statuses, places, new failures, deletions.
func change(t testing.TB, pool *pgxpool.Pool, r *rand.Rand) {
	t.Helper()
	for _, sql := range []string{
		"update dead_letters set status = 'redriving' where random() < 0.2 and status = 'pending'",
		"update dead_letters set status = 'pending', attempts = attempts + 1, failed_at = '2026-03-01 11:59:59.5+00' where random() < 0.3 and status = 'redriving'",
		"update dead_letters set anchor = null, located_by = 'none' where random() < 0.02",
		"update dead_letters set anchor = ST_SetSRID(ST_MakePoint(random() * 10, random() * 10), 4326), located_by = 'guess' where random() < 0.1 and anchor is null",
		"update dead_letters set source = 'new ' || floor(random() * 3) where random() < 0.02",
		"delete from dead_letters where random() < 0.02",
	} {
		if r.IntN(2) == 0 {
			continue
		}
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func fold(t testing.TB, s *store.Store) {
	t.Helper()
	for {
		time.Sleep(310 * time.Millisecond)
		n, err := s.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// equalWays checks that counts and rows say the same for a filter.
func equalWays(t *testing.T, s *store.Store, f dlq.Filter, tiles ...dlq.Tile) {
	t.Helper()
	ctx := t.Context()
	stats, err := s.Stats(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	byRows, err := s.RowStats(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(stats, byRows) {
		t.Errorf("stats of %s:\ncounts %+v\nrows   %+v", f.Values().Encode(), *stats, *byRows)
	}
	charts, err := s.Charts(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	chartsByRows, err := s.RowCharts(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(charts, chartsByRows) {
		t.Errorf("charts of %s:\ncounts %+v\nrows   %+v", f.Values().Encode(), *charts, *chartsByRows)
	}
	for _, tile := range tiles {
		drawn, _, err := s.Tile(ctx, f, tile)
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.RowTile(ctx, f, tile)
		if err != nil {
			t.Fatal(err)
		}
		if string(drawn) != string(want) {
			t.Errorf("tile %v of %s: counts %d bytes, rows %d", tile, f.Values().Encode(), len(drawn), len(want))
		}
	}
}

// plainWhere is a filter by SQL that is neither way's.
const plainWhere = ` from dead_letters
	where status = any($1) and ($2::text[] is null or stage = any($2)) and ($3::text[] is null or class = any($3))
		and ($4::text[] is null or source = any($4)) and ($5::text[] is null or task = any($5))
		and ($6::text[] is null or fingerprint = any($6)) and ($7::text[] is null or located_by = any($7))
		and ($8::boolean is null or (anchor is not null) = $8) and ($9::timestamptz is null or failed_at >= $9)
		and ($10::timestamptz is null or failed_at < $10)`

func plainArgs(f dlq.Filter) []any {
	statuses := f.Statuses
	if len(statuses) == 0 {
		statuses = dlq.OpenStatuses
	}
	return []any{statuses, f.Stages, f.Classes, f.Sources, f.Tasks, f.Groups, f.LocatedBy, f.Located, f.Since, f.Until}
}

// equalPlain checks totals, and the second page of the list, against plain SQL.
func equalPlain(t *testing.T, s *store.Store, pool *pgxpool.Pool, f dlq.Filter) {
	t.Helper()
	ctx := t.Context()
	var total, located int64
	if err := pool.QueryRow(ctx, "select count(*), count(anchor)"+plainWhere, plainArgs(f)...).Scan(&total, &located); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	const limit = 7
	page, counted, err := s.CountedLetters(ctx, f, limit)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Total != total || stats.Located != located || counted != total {
		t.Errorf("%s: %d (%d counted) and %d located, want %d and %d", f.Values().Encode(), stats.Total, counted, stats.Located, total, located)
	}
	if page.Next != nil {
		page, err = s.Letters(ctx, f, page.Next, limit)
	}
	if err != nil {
		t.Fatal(err)
	}
	offset := 0
	if total > limit {
		offset = limit
	}
	rows, _ := pool.Query(ctx, "select id"+plainWhere+" order by failed_at desc, id desc offset $11 limit $12", append(plainArgs(f), offset, limit)...)
	want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, letter := range page.Letters {
		got = append(got, letter.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: letters %v, want %v", f.Values().Encode(), got, want)
	}
}

// A run that a version before wrote has no summary of days: nothing may be counted from
// what is not there, and the next fold makes it.
func TestARunWithoutItsLastSummaryIsCountedRightlyAndSummedAnew(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store.New(pool, nil, store.Rules{})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	randomLetters(t, pool, r, 40_000)
	fold(t, s)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("delete from letter_blocks where kind = 3")
	for range 8 {
		equalWays(t, s, randomFilter(r), dlq.Tile{})
	}
	exec("update dead_letters set reason = 'looked at' where id = (select min(id) from dead_letters)")
	fold(t, s)
	var days, runs int
	if err := pool.QueryRow(t.Context(), "select count(*) filter (where kind = 3), count(distinct run) from letter_blocks").Scan(&days, &runs); err != nil {
		t.Fatal(err)
	}
	if days == 0 || runs != 1 {
		t.Errorf("%d blocks of days, %d runs; seed %d", days, runs, seed)
	}
	if v, err := s.VerifyCounts(t.Context()); err != nil || v.Wrong != 0 {
		t.Error(v, err)
	}
	equalWays(t, s, dlq.Filter{}, dlq.Tile{})
}

func TestCountsAndRowsAndPlainSQLSayTheSameUnderEveryFilter(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store.New(pool, nil, store.Rules{})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 6 {
		switch {
		case round == 5:
			s.TellNoFacets()
		case round == 4: // large enough for summaries
			randomLetters(t, pool, r, 40_000)
			s.CountByBlocks()
		case round%2 == 0:
			randomLetters(t, pool, r, 1+r.IntN(3000))
		}
		change(t, pool, r)
		if r.IntN(3) > 0 || round == 4 {
			fold(t, s)
		}
		if r.IntN(2) == 0 {
			change(t, pool, r)
		}
		for i := range 8 {
			f := randomFilter(r)
			if i == 0 {
				f = dlq.Filter{}
			}
			z := r.IntN(store.MaxCellZoom + 1)
			equalWays(t, s, f, dlq.Tile{}, dlq.Tile{Z: z, X: r.IntN(1 << z), Y: r.IntN(1 << z)}, dlq.Tile{Z: 2, X: 2, Y: 1})
			equalPlain(t, s, pool, f)
			if t.Failed() {
				t.Fatalf("round %d, filter %d, seed %d", round, i, seed)
			}
		}
	}
}

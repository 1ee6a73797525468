package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// Variables of the benchmarks of the map: how many letters to seed, or the database
// of an earlier run to measure at instead.
const (
	benchLettersVariable  = "GEODLQ_BENCH_LETTERS"
	benchDatabaseVariable = "GEODLQ_BENCH_DATABASE_URL"
)

// mapLetters is how many letters the map is measured at.
const mapLetters = 1_000_000

// pairs is how many tiles and filters are asked for, each once.
const pairs = 500

// plainTile is what a tile server makes of the same rows, with the index on the
// anchors: every letter a point.
const plainTile = `select coalesce(ST_AsMVT(t, 'letters', 4096, 'geom'), '') from (
	select ST_AsMVTGeom(ST_Transform(d.anchor, 3857), ST_TileEnvelope($1, $2, $3), 4096, 64, true) as geom, d.id, d.stage, d.class, d.status
	from dead_letters d where d.status in ('pending', 'redriving', 'quarantined')
		and d.anchor && ST_Transform(ST_TileEnvelope($1, $2, $3), 4326)) t where geom is not null`

// benchServer is a web process of its own over a seeded database, as cold as it gets.
func benchServer(b testing.TB) *server {
	s := &server{t: b, env: map[string]string{}, log: &syncBuffer{}}
	s.env["DATABASE_URL"] = os.Getenv(benchDatabaseVariable)
	seeded := s.env["DATABASE_URL"] != ""
	if !seeded {
		s.env["DATABASE_URL"] = pgtest.URL(b)
	}
	var err error
	if s.db, err = store.Connect(context.Background(), s.env["DATABASE_URL"], 4); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.db.Close)
	if !seeded {
		n := mapLetters
		if text := os.Getenv(benchLettersVariable); text != "" {
			if n, err = strconv.Atoi(text); err != nil {
				b.Fatal(err)
			}
		}
		if err := store.New(s.db, nil, store.Rules{}).Seed(b.Context(), n); err != nil {
			b.Fatal(err)
		}
	}
	s.restart()
	return s
}

// restart begins a web process, with nothing in its memory.
func (s *server) restart() {
	s.t.Helper()
	if s.stop != nil {
		s.stop()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s.url = "http://" + addr
	process := s.startProcess("web", map[string]string{"GEODLQ_ADDR": addr})
	s.stop = func() { _ = process.Process.Kill(); _ = process.Wait() }
	s.eventually("the web process to listen", func() bool {
		response, err := http.Get(s.url + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
}

// took is how long an answer takes, whole.
func (s *server) took(path string) (time.Duration, answer) {
	s.t.Helper()
	began := time.Now()
	a := s.get(path)
	took := time.Since(began)
	if a.status != 200 && a.status != 204 {
		s.t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	return took, a
}

// spread is p50, p95 and the longest of some times.
type spread []time.Duration

func (t spread) at(p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func (t spread) String() string {
	return fmt.Sprintf("p50 %s, p95 %s, max %s", ms(t.at(0.5)), ms(t.at(0.95)), ms(t.at(1)))
}

func ms(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + " ms" }

// randomPair is a tile around a letter and a filter, half of them with a source and
// a time.
func (s *server) randomPair(r *rand.Rand, newest time.Time, cells []int64) (dlq.Tile, url.Values) {
	v := url.Values{}
	if r.IntN(2) == 0 {
		v.Set("source", pick(r, "wfs-iberia", "kataster-bb", "fleet-eu", "buoy-17", "muni-0417", "dem-mosaic", "ais-pacific", "default"))
		since := newest.Add(-time.Duration(r.Float64() * float64(30*24*time.Hour))).Truncate(time.Minute)
		v.Set("since", since.Format(time.RFC3339))
		if r.IntN(2) == 0 {
			v.Set("until", since.Add(time.Duration(1+r.IntN(10*24*60))*time.Minute).Format(time.RFC3339))
		}
	}
	if r.IntN(2) == 0 {
		v.Set("class", string(dlq.Classes[r.IntN(len(dlq.Classes))]))
	}
	if r.IntN(3) == 0 {
		v.Set("stage", string(dlq.Stages[r.IntN(len(dlq.Stages))]))
	}
	if r.IntN(3) == 0 {
		v.Set("status", string(dlq.Statuses[r.IntN(len(dlq.Statuses))]))
	}
	return tileOf(cells[r.IntN(len(cells))], r.IntN(17)), v
}

func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

// plainCounts counts a filter's letters by SQL of its own, over their columns alone:
// all, located, and in a range of cells.
func (s *server) plainCounts(v url.Values, from, to int64) (total, located, inTile int64) {
	s.t.Helper()
	conds, args := []string{"true"}, []any{from, to}
	for _, name := range []string{"source", "class", "stage", "status"} {
		if v.Has(name) {
			args = append(args, v.Get(name))
			conds = append(conds, fmt.Sprintf("%s = $%d", name, len(args)))
		}
	}
	if !v.Has("status") {
		conds = append(conds, "status in ('pending', 'redriving', 'quarantined')")
	}
	for name, op := range map[string]string{"since": ">=", "until": "<"} {
		if v.Has(name) {
			args = append(args, v.Get(name))
			conds = append(conds, fmt.Sprintf("failed_at %s $%d::text::timestamptz", op, len(args)))
		}
	}
	err := s.db.QueryRow(s.t.Context(), `select count(*), count(cell), count(*) filter (where cell >= $1 and cell < $2)
		from bench_letters where `+strings.Join(conds, " and "), args...).Scan(&total, &located, &inTile)
	if err != nil {
		s.t.Fatal(err)
	}
	return total, located, inTile
}

// BenchmarkMap measures what the page asks for at a million letters, by HTTP, against
// what a tile server would do with the same rows. It runs once: -benchtime=1x.
func BenchmarkMap(b *testing.B) {
	s := benchServer(b)
	for b.Loop() {
		s.benchWorld(b)
		s.benchPairs(b)
		s.benchLists(b)
		s.benchCapture(b)
		s.benchChurn(b)
		s.benchSize(b)
	}
}

func (s *server) benchWorld(b *testing.B) {
	var plain spread
	var plainSize int
	for range max(1, 3/s.millions()) {
		began := time.Now()
		var tile []byte
		if err := s.db.QueryRow(b.Context(), plainTile, 0, 0, 0).Scan(&tile); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))
		plainSize = len(tile)
	}
	var cold, warm spread
	var size int
	for range 5 {
		s.restart()
		took, a := s.took("/tiles/0/0/0.mvt")
		cold, size = append(cold, took), len(a.body)
		for range 20 {
			took, _ := s.took("/tiles/0/0/0.mvt")
			warm = append(warm, took)
		}
	}
	base := plain.at(0.5)
	b.Logf("world tile: plain ST_AsMVT %s, %d kB; cold %s, %.0f×; warm %s, %.0f×; %d bytes",
		ms(base), plainSize/1000, ms(cold.at(0.5)), base.Seconds()/cold.at(0.5).Seconds(),
		ms(warm.at(0.5)), base.Seconds()/warm.at(0.5).Seconds(), size)
	b.ReportMetric(base.Seconds()/cold.at(0.5).Seconds(), "×/cold")
	b.ReportMetric(base.Seconds()/warm.at(0.5).Seconds(), "×/warm")
	a := s.get("/tiles/0/0/0.mvt")
	var again spread
	for range 20 {
		began := time.Now()
		if a := s.do("GET", "/tiles/0/0/0.mvt", map[string]string{"If-None-Match": a.header.Get("ETag")}, nil); a.status != 304 {
			b.Fatalf("again: %d", a.status)
		}
		again = append(again, time.Since(began))
	}
	b.Logf("world tile again, unchanged: 304, %s", again)
}

// millions of letters there are, at least one.
func (s *server) millions() int {
	return max(1, s.count("select count(*) from dead_letters")/1_000_000)
}

// benchPairs asks for tiles and stats under random filters, each once, and checks
// each count; of more than a million letters one in as many, since plain SQL takes so
// long.
func (s *server) benchPairs(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	rows, _ := s.db.Query(b.Context(), "select cell from dead_letters where cell is not null order by hashint8(id) limit 5000")
	cells, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		b.Fatal(err)
	}
	s.exec("drop table if exists bench_letters")
	s.exec("create unlogged table bench_letters as select source, class, stage, status, failed_at, cell from dead_letters")
	defer s.exec("drop table bench_letters")
	var newest time.Time
	if err := s.db.QueryRow(b.Context(), "select max(failed_at) from dead_letters").Scan(&newest); err != nil {
		b.Fatal(err)
	}
	s.restart()
	var tiles, stats, counted spread
	var sizes []int
	asked := map[string]bool{}
	every := s.millions()
	for len(tiles) < pairs {
		t, v := s.randomPair(r, newest, cells)
		path := fmt.Sprintf("/tiles/%d/%d/%d.mvt?%s", t.Z, t.X, t.Y, v.Encode())
		if asked[path] {
			continue
		}
		asked[path] = true
		took, tile := s.took(path)
		tiles, sizes = append(tiles, took), append(sizes, len(tile.body))
		took, a := s.took("/v1/stats?" + v.Encode())
		stats = append(stats, took)
		if len(tiles)%every != 0 {
			continue
		}
		key := keyOf(t)
		shift := 2 * (30 - t.Z)
		began := time.Now()
		total, located, inTile := s.plainCounts(v, key<<shift, (key+1)<<shift)
		counted = append(counted, time.Since(began))
		said := a.json(b)
		if n := countInTile(b, tile.body); int64(n) != inTile || said["total"] != float64(total) || said["located"] != float64(located) {
			b.Errorf("%s: %.0f in the tile, want %d; %v and %v located, want %d and %d", path, n, inTile, said["total"], said["located"], total, located)
		}
	}
	slices.Sort(sizes)
	b.Logf("%d tiles of z0 to z16 under filters: %s; p95 %d bytes, max %d", pairs, tiles, sizes[pairs*95/100], sizes[pairs-1])
	b.Logf("%d stats under filters: %s (plain count(*) of %d of them, which say the same: %s)", pairs, stats, len(counted), counted)
	b.ReportMetric(tiles.at(0.95).Seconds()*1000, "ms/tile-p95")
	b.ReportMetric(stats.at(0.95).Seconds()*1000, "ms/stats-p95")
}

// tileOf is the tile that a cell lies in.
func tileOf(cell int64, z int) dlq.Tile {
	key := cell >> (2 * (30 - z))
	t := dlq.Tile{Z: z}
	for bit := range z {
		t.X |= int(key>>(2*bit)&1) << bit
		t.Y |= int(key>>(2*bit+1)&1) << bit
	}
	return t
}

func keyOf(t dlq.Tile) int64 {
	var key int64
	for bit := range t.Z {
		key |= int64(t.X>>bit&1)<<(2*bit) | int64(t.Y>>bit&1)<<(2*bit+1)
	}
	return key
}

func (s *server) benchLists(b *testing.B) {
	var first, deep, page spread
	s.took("/v1/dead-letters?limit=50")
	var at time.Time
	var id int64
	err := s.db.QueryRow(b.Context(), `select failed_at, id from dead_letters where status in ('pending', 'redriving', 'quarantined')
		order by failed_at desc, id desc offset 49949 limit 1`).Scan(&at, &id)
	if err != nil {
		b.Fatal(err)
	}
	after := dlq.Cursor{FailedAt: at, ID: id}.String()
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		v := url.Values{"limit": {"50"}}
		took, _ := s.took("/v1/dead-letters?" + v.Encode() + "&after=" + after)
		deep = append(deep, took)
		_, filter := s.randomPair(r, time.Now(), []int64{0})
		filter.Set("limit", "50")
		took, _ = s.took("/v1/dead-letters?" + filter.Encode())
		first = append(first, took)
		filter.Del("limit")
		began, _, _ := s.timed("/?" + filter.Encode())
		page = append(page, began)
	}
	b.Logf("first page of lists under filters: %s; the 1,000th of all: %s", first, deep)
	b.Logf("first byte of / under filters: %s", page)
	b.ReportMetric(first.at(0.95).Seconds()*1000, "ms/list-p95")
	b.ReportMetric(page.at(0.95).Seconds()*1000, "ms/page-p95")
}

// churnPause lies between two looks at the world, before the churn and after: while
// the last of it is folded and merged, a second or two, each look takes longer; and
// after a pause each takes longer than in a row.
const churnPause = 150 * time.Millisecond

// benchChurn changes 50,000 statuses, and asks for the world while nothing was
// vacuumed.
func (s *server) benchChurn(b *testing.B) {
	s.exec("alter table dead_letters set (autovacuum_enabled = false)")
	defer s.exec("alter table dead_letters reset (autovacuum_enabled)")
	calm := s.pacedWorlds(40)
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		for range 50 {
			_, err := s.db.Exec(context.Background(), `update dead_letters set status = case status when 'pending' then 'quarantined' else 'pending' end, version = version + 1
				where id in (select id from dead_letters tablesample system (1) where status in ('pending', 'quarantined') limit 1000)`)
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var during spread
	for under := true; under; {
		select {
		case err := <-done:
			if err != nil {
				b.Fatal(err)
			}
			under = false
		default:
			during = append(during, s.worlds(1)...)
		}
	}
	changed := time.Since(began)
	after := s.pacedWorlds(40)
	b.Logf("world tile, never from memory: calm %s; while 50,000 statuses changed in %s: %s; after: %s, %.1f× of calm",
		calm, ms(changed), during, after, after.at(0.5).Seconds()/calm.at(0.5).Seconds())
	b.ReportMetric(after.at(0.5).Seconds()/calm.at(0.5).Seconds(), "×/churn")
}

func (s *server) pacedWorlds(n int) spread {
	var out spread
	for range n {
		out = append(out, s.worlds(1)...)
		time.Sleep(churnPause)
	}
	return out
}

// worlds asks for the world of all classes, in an order that was not asked for before,
// so that no tile is kept from then.
func (s *server) worlds(n int) spread {
	var out spread
	for range n {
		v := url.Values{}
		for _, i := range rand.Perm(len(dlq.Classes)) {
			v.Add("class", string(dlq.Classes[i]))
		}
		took, _ := s.took("/tiles/0/0/0.mvt?" + v.Encode())
		out = append(out, took)
	}
	return out
}

// captureRound is how many letters a round of benchCapture makes, in updates of
// captureBatch jobs from two connections, as River's completer does.
const (
	captureRound = 20_000
	captureBatch = 500
)

// benchCapture compares capture with and without the trigger that counts.
func (s *server) benchCapture(b *testing.B) {
	var with, without spread
	for round := range 6 {
		if round%2 == 0 {
			with = append(with, s.captures(round))
			continue
		}
		s.exec("alter table dead_letters disable trigger geodlq_count")
		without = append(without, s.captures(round))
		s.exec("delete from dead_letters where work_key like $1", fmt.Sprintf("capture-%d-%%", round)) // nobody counted them
		s.exec("alter table dead_letters enable trigger geodlq_count")
	}
	ratio := without.at(0).Seconds() / with.at(0).Seconds()
	b.Logf("capture of %d: %.0f/s with counts, %.0f/s without: %.2f×", captureRound,
		captureRound/with.at(0).Seconds(), captureRound/without.at(0).Seconds(), ratio)
	b.ReportMetric(ratio, "×/capture")
}

// captures ends jobs in flight as discarded, and is how long that takes.
func (s *server) captures(round int) time.Duration {
	s.t.Helper()
	run := fmt.Sprintf("capture-%d-%d-", round, time.Now().UnixNano())
	s.exec(`with e as (
			insert into events (work_key, source, body, size, sha256, media_type, job_id)
			select $1 || i, 'bench', '{}', 2, sha256('{}'), 'application/geo+json', nextval('river_job_id_seq')
			from generate_series(1, $2::int) i returning id, job_id)
		insert into river_job (id, args, kind, max_attempts, state)
		select job_id, jsonb_build_object('event_id', id), 'process_event', 3, 'available' from e`, run, captureRound)
	rows, _ := s.db.Query(s.t.Context(), "select job_id from events where work_key like $1 order by job_id", run+"%")
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		s.t.Fatal(err)
	}
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(2)
	for batch := range slices.Chunk(jobs, captureBatch) {
		group.Go(func() error {
			_, err := s.db.Exec(context.Background(), `update river_job set state = 'discarded', finalized_at = now(),
				metadata = jsonb_build_object('output', jsonb_build_object('stage', 'crs', 'class', 'crs_mismatch', 'fingerprint', 'bench',
					'error', 'EPSG:4326 is claimed', 'anchor', jsonb_build_array(id % 360 - 180, id % 80),
					'wkb', encode(ST_AsBinary(ST_MakePoint(id % 360 - 180, id % 80)), 'base64')))
				where id = any($1)`, batch)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.t.Fatal(err)
	}
	return time.Since(began)
}

// benchSize compares what counting takes on disk with the letters.
func (s *server) benchSize(b *testing.B) {
	var letters, more int64
	err := s.db.QueryRow(b.Context(), `select pg_total_relation_size('dead_letters'),
		pg_total_relation_size('letter_blocks') + pg_total_relation_size('letter_deltas') + pg_total_relation_size('facets')
			+ pg_relation_size('dead_letters_oldest_open') + pg_relation_size('dead_letters_facet') + pg_relation_size('dead_letters_cell')`).Scan(&letters, &more)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("letters %d MB, of it and beside it for counts %d MB: %.1f%%", letters>>20, more>>20, 100*float64(more)/float64(letters))
	b.ReportMetric(100*float64(more)/float64(letters), "%/storage")
}

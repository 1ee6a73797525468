package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func (s *server) postJSON(path string, body any) answer {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do("POST", path, map[string]string{"Content-Type": "application/json"}, text)
}

// order makes an order and returns it.
func (s *server) order(body map[string]any, status int) map[string]any {
	s.t.Helper()
	a := s.postJSON("/v1/redrives", body)
	if a.status != status {
		s.t.Fatalf("order %v: %d %s", body, a.status, a.body)
	}
	return a.json(s.t)
}

func (s *server) orderState(id any) map[string]any {
	s.t.Helper()
	return s.get(fmt.Sprintf("/v1/redrives/%.0f", id)).json(s.t)
}

func (s *server) waitOrder(id any) map[string]any {
	s.t.Helper()
	s.eventually("the order to end", func() bool { return s.orderState(id)["state"] == "done" })
	return s.orderState(id)
}

// outage makes n letters of a sink that is down, one degree apart along a parallel,
// and brings the sink back.
func (s *server) outage(sink *testSink, n int) []string {
	s.t.Helper()
	sink.status(503)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("out-%03d", i)
		s.post(keys[i], fmt.Sprintf(`{"type":"Point","coordinates":[%d,40]}`, i%90))
	}
	for _, key := range keys {
		s.settle(key)
	}
	sink.status(200)
	return keys
}

func TestAnOrderRedrivesExactlyWhatWasPreviewed(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	keys := s.outage(sink, 30)
	// Beside them: bad data in the same box, a geotask, one in quarantine.
	s.post("bad", `{"type":"Polygon","coordinates":[[[5,40],[6,41],[6,40],[5,41],[5,40]]]}`)
	s.settle("bad")
	s.report(map[string]any{"work_key": "task", "geometry": map[string]any{"type": "Point", "coordinates": []float64{5, 40}}}, "")
	s.post("held", `{"type":"Point","coordinates":[5,95]}`)
	s.act(s.settle("held")["letter_id"], "quarantine")

	filter := map[string]any{"bbox": []float64{0, 39.5, 9, 41}}
	preview := s.order(map[string]any{"filter": filter, "dry_run": true, "reason": "sink is back"}, 200)
	if preview["state"] != "preview" || preview["matched"] != 12.0 || preview["eligible"] != 11.0 || preview["bad_data"] != 1.0 {
		t.Fatalf("%v", preview)
	}
	if refused := preview["refused"].([]any); len(refused) != 1 || refused[0].(map[string]any)["count"] != 1.0 || !strings.Contains(refused[0].(map[string]any)["reason"].(string), "owner") {
		t.Errorf("refused %v", refused)
	}
	// What arrives after the preview is not in it; what changed, or is gone, is skipped.
	sink.status(503)
	s.post("late", `{"type":"Point","coordinates":[5,40]}`)
	s.settle("late")
	sink.status(200)
	changed := s.settle(keys[3])["letter_id"]
	s.act(changed, "quarantine")
	s.act(changed, "release")
	s.exec("delete from dead_letters where work_key = $1", keys[5])
	asked, _ := sink.taken()

	id := preview["id"]
	if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/start", id), nil, nil); a.status != 200 || a.json(t)["state"] != "running" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/start", id), nil, nil); a.status != 409 {
		t.Errorf("started twice: %d %s", a.status, a.body)
	}
	counts := s.waitOrder(id)["counts"].(map[string]any)
	if counts["replayed"] != 8.0 || counts["failed"] != 1.0 || counts["skipped"] != 2.0 || counts["waiting"] != 0.0 || counts["running"] != 0.0 {
		t.Errorf("%v", counts)
	}
	if gone := s.count("select count(*) from redrive_letters where redrive_id = $1 and state = 'skipped' and outcome = 'the letter is gone'", id); gone != 1 {
		t.Errorf("%d letters are said to be gone", gone)
	}
	taken, _ := sink.taken()
	got := taken[len(asked):]
	slices.Sort(got)
	want := slices.Concat(keys[:3], keys[4:5], keys[6:10])
	if !slices.Equal(got, want) {
		t.Errorf("the sink received %v, want %v", got, want)
	}
	if s.statusOf(s.settle("late")["letter_id"]) != "pending" || s.statusOf(changed) != "pending" {
		t.Error("the order touched what was not in it")
	}
}

func TestAnOrderIsRefusedWhereItWouldBeEverythingByMistake(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, body := range []map[string]any{
		{}, {"filter": map[string]any{}}, {"filter": map[string]any{"stage": []string{}}}, {"filter": map[string]any{"bbox": ""}},
		{"filter": map[string]any{"stgae": "crs"}}, {"filter": map[string]any{"stage": "x"}}, {"ids": []int{}}, {"filter": map[string]any{"everything": "yes"}},
		{"filter": map[string]any{"stage": map[string]any{}}}, {"action": "explode", "filter": map[string]any{"stage": "crs"}},
		{"action": "abandon", "filter": map[string]any{"stage": "crs"}}, {"filter": map[string]any{"stage": "crs"}, "canary": map[string]any{"size": 1}},
		{"filter": map[string]any{"stage": "crs"}, "ids": []int{1}}, {"filter": map[string]any{"everything": false}},
	} {
		if a := s.postJSON("/v1/redrives", body); a.status != 422 {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}
	if n := s.count("select count(*) from redrives"); n != 0 {
		t.Errorf("%d orders were made", n)
	}
	done := s.order(map[string]any{"filter": map[string]any{"everything": true}}, 202)
	s.waitOrder(done["id"])
	for _, verb := range []string{"start", "pause", "resume", "cancel"} {
		if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/%s", done["id"], verb), nil, nil); a.status != 409 {
			t.Errorf("%s of an order that is done: %d %s", verb, a.status, a.body)
		}
	}
	if a := s.do("POST", "/v1/redrives/999/start", nil, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	old := s.order(map[string]any{"filter": map[string]any{"everything": true}, "dry_run": true}, 200)
	s.exec("update redrives set created_at = now() - interval '16 minutes' where id = $1", int64(old["id"].(float64)))
	if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/start", old["id"]), nil, nil); a.status != 409 || !strings.Contains(string(a.body), "15 minutes") {
		t.Errorf("a stale preview: %d %s", a.status, a.body)
	}
}

func TestTickedAndBulkActionsFollowTheTable(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	var ids []any
	for i := range 6 {
		key := fmt.Sprintf("b%d", i)
		s.post(key, bowtie)
		ids = append(ids, s.settle(key)["letter_id"])
	}
	statuses := func() string {
		var out []string
		for _, id := range ids {
			out = append(out, s.statusOf(id))
		}
		return strings.Join(out, " ")
	}
	s.waitOrder(s.order(map[string]any{"action": "quarantine", "ids": ids[:3]}, 202)["id"])
	if got := statuses(); got != "quarantined quarantined quarantined pending pending pending" {
		t.Fatal(got)
	}
	group := properties(s.letter(ids[0]))["group"]
	o := s.waitOrder(s.order(map[string]any{"action": "quarantine", "filter": map[string]any{"group": group}}, 202)["id"])
	if got := statuses(); got != strings.TrimSpace(strings.Repeat("quarantined ", 6)) || o["matched"] != 6.0 || o["eligible"] != 3.0 || o["refused"].([]any)[0].(map[string]any)["reason"] != "quarantined" {
		t.Fatal(got, o)
	}
	s.waitOrder(s.order(map[string]any{"action": "release", "filter": map[string]any{"status": "quarantined"}}, 202)["id"])
	s.waitOrder(s.order(map[string]any{"action": "abandon", "reason": "withdrawn", "ids": ids[4:]}, 202)["id"])
	if got := statuses(); got != "pending pending pending pending abandoned abandoned" {
		t.Fatal(got)
	}
	if p := properties(s.letter(ids[5])); p["reason"] != "withdrawn" || p["resolved_at"] == nil {
		t.Errorf("%v", p)
	}
	if n := s.count("select count(*) from dead_letter_history where action = 'quarantine' and actor = 'api'"); n != 6 {
		t.Errorf("%d rows of history", n)
	}
}

func TestARedriveOfOneLetterCanBeTakenBack(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_UNDO_WINDOW": "3s"})
	s.outage(sink, 2)
	id, other := s.settle("out-000")["letter_id"], s.settle("out-001")["letter_id"]
	asked, _ := sink.taken()
	if a := s.act(id, "redrive"); a.status != 200 || properties(a.json(t))["status"] != "redriving" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.act(other, "redrive")
	if a := s.act(id, "undo"); a.status != 200 || properties(a.json(t))["status"] != "pending" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.act(id, "undo"); a.status != 409 {
		t.Errorf("twice: %d %s", a.status, a.body)
	}
	s.eventually("the other to be replayed", func() bool { return s.statusOf(other) == "replayed" })
	if a := s.act(other, "undo"); a.status != 409 {
		t.Errorf("too late: %d %s", a.status, a.body)
	}
	if taken, _ := sink.taken(); len(taken) != len(asked)+1 {
		t.Errorf("the sink was asked for what was taken back")
	}
	if p := properties(s.letter(id)); p["attempts"] != 1.0 || p["redrives"] != 0.0 || p["status"] != "pending" {
		t.Errorf("taking back cost an attempt: %v", p)
	}
	if n := s.count("select count(*) from dead_letters"); n != 2 {
		t.Errorf("%d letters", n)
	}
	s.act(id, "redrive")
	s.eventually("it to be replayed after all", func() bool { return s.statusOf(id) == "replayed" })
}

func TestACancelledOrderLeavesWhatDidNotGoPending(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_WORKERS": "4", "GEODLQ_SINK_TIMEOUT": "30s"})
	s.outage(sink, 60)
	hold := make(chan struct{})
	sink.answers(func(http.ResponseWriter, *http.Request) { <-hold })
	asked, _ := sink.taken()
	o := s.order(map[string]any{"filter": map[string]any{"class": "upstream_error"}}, 202)
	s.eventually("it to run", func() bool { taken, _ := sink.taken(); return len(taken) >= len(asked)+2 })
	if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/cancel", o["id"]), nil, nil); a.status != 200 || a.json(t)["state"] != "cancelled" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	close(hold)
	s.eventually("what ran to end", func() bool { return s.orderState(o["id"])["counts"].(map[string]any)["running"] == 0.0 })
	counts := s.orderState(o["id"])["counts"].(map[string]any)
	taken, _ := sink.taken()
	went := float64(len(taken) - len(asked))
	if counts["replayed"] != went || counts["skipped"] != 60-went || went > 10 {
		t.Errorf("%v, the sink was asked for %v", counts, went)
	}
	if n := s.count("select count(*) from dead_letters where status = 'pending' and attempts = 1"); float64(n) != 60-went {
		t.Errorf("%d letters are pending", n)
	}
}

func TestAnOrderIsPausedWithoutWaitingForItsBatchAndCancelledBehindIt(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.spread(300)
	s.exec("update dead_letters set status = 'pending'")
	ctx := context.Background()
	tx, err := s.db.Begin(ctx) // another's work on a letter of the first batch keeps it open
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "select from dead_letters where id = (select max(id) from dead_letters) for update"); err != nil {
		t.Fatal(err)
	}
	o := s.order(map[string]any{"action": "quarantine", "filter": map[string]any{"status": "pending"}}, 202)
	s.eventually("the batch to wait", func() bool {
		return s.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1
	})
	path := fmt.Sprintf("/v1/redrives/%.0f/", o["id"])
	asked := time.Now()
	if a := s.do("POST", path+"pause", nil, nil); a.status != 200 || a.json(t)["state"] != "paused" || time.Since(asked) > 5*time.Second {
		t.Errorf("%d after %v: %s", a.status, time.Since(asked), a.body)
	}
	cancelled := make(chan answer)
	go func() { cancelled <- s.do("POST", path+"cancel", nil, nil) }()
	s.eventually("the cancelling to wait too", func() bool {
		return s.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 2
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-cancelled; a.status != 200 || a.json(t)["state"] != "cancelled" {
		t.Errorf("%d %s", a.status, a.body)
	}
	counts := s.orderState(o["id"])["counts"].(map[string]any)
	if counts["replayed"] != 200.0 || counts["skipped"] != 100.0 || s.count("select count(*) from dead_letters where status = 'quarantined'") != 200 {
		t.Errorf("%v", counts)
	}
}

func TestAnOrderDoesNotWaitForAFullQueue(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_WORKERS": "2", "GEODLQ_SINK_TIMEOUT": "60s"})
	s.outage(sink, 10)
	slow := make(chan struct{})
	sink.answers(func(http.ResponseWriter, *http.Request) {
		select {
		case <-slow:
		case <-time.After(200 * time.Millisecond):
		}
	})
	const queued = 400 // 40 s of work
	s.post("queue", `{"type":"FeatureCollection","features":[`+strings.TrimSuffix(strings.Repeat(berlin+",", queued), ",")+`]}`)
	s.eventually("the queue to be full", func() bool {
		return s.count("select count(*) from events where work_key like 'queue#%'") == queued
	})
	o := s.order(map[string]any{"action": "quarantine", "filter": map[string]any{"class": "upstream_error"}}, 202)
	s.eventually("the order to be done", func() bool { return s.orderState(o["id"])["state"] == "done" })
	if left := s.count("select count(*) from events where work_key like 'queue#%' and state = 'accepted'"); left < queued/2 {
		t.Errorf("it waited until %d were left of %d", left, queued)
	}
	close(slow)
}

// spread makes letters of all kinds all over the world by SQL: poles, antimeridian,
// tile borders, guesses and unlocated ones too.
func (s *server) spread(n int) {
	s.t.Helper()
	s.exec(`insert into dead_letters (work_key, kind, task, source, stage, class, error, fingerprint, anchor, geom, located_by, status, failed_at, src_crs, labels, attempts)
		select 'spread-' || i, case when i % 5 = 0 then 'geotask' else 'event' end, 't' || i % 3, 's' || i % 4,
			(array['envelope','parse','validate','crs','downstream'])[1 + i % 5],
			(array['malformed_payload','unsupported_format','invalid_geometry','crs_mismatch','upstream_timeout','upstream_error','oom','unknown'])[1 + i % 8],
			'error ' || i % 7, 'g' || i % 7, p, p, case when p is null then 'none' when i % 11 = 0 then 'guess' when i % 13 = 0 then 'tile' else 'geometry' end,
			(array['pending','redriving','quarantined','replayed','abandoned'])[1 + i % 5],
			'2026-01-01T00:00:00Z'::timestamptz + i * interval '1 minute', 'EPSG:' || 4326 + i % 2, jsonb_build_object('orbit', i % 9), 1 + i % 4
		from generate_series(1, $1) i, lateral (select case i % 12
			when 0 then null
			when 1 then ST_SetSRID(ST_MakePoint(180, (i % 170) - 85), 4326)
			when 2 then ST_SetSRID(ST_MakePoint(-180, (i % 170) - 85), 4326)
			when 3 then ST_SetSRID(ST_MakePoint((i % 360) - 180, 90), 4326)
			when 4 then ST_SetSRID(ST_MakePoint((i % 360) - 180, -90), 4326)
			when 5 then ST_SetSRID(ST_MakePoint(((i % 16) - 8) * 22.5, ((i % 3) - 1) * 66.51326044311186), 4326)
			when 6 then ST_SetSRID(ST_MakePoint(((i % 16) - 8) * 22.5, 0), 4326)
			else ST_SetSRID(ST_MakePoint(((i::bigint * 7919) % 36000) / 100.0 - 180, ((i::bigint * 104729) % 18000) / 100.0 - 90), 4326) end as p) q`, n)
}

// randomFilter is a query string of some random restrictions.
func randomFilter(r *rand.Rand) string {
	var parts []string
	pick := func(name string, values ...string) {
		for _, v := range values {
			if r.IntN(3) == 0 {
				parts = append(parts, name+"="+v)
			}
		}
	}
	switch r.IntN(8) {
	case 0:
		pick("stage", "envelope", "parse", "validate", "crs", "downstream")
	case 1:
		pick("class", "malformed_payload", "invalid_geometry", "oom", "unknown", "crs_mismatch")
	case 2:
		parts = append(parts, fmt.Sprintf("since=2026-01-01T%02d:00:00Z", r.IntN(10)))
	case 3:
		pick("located_by", "guess", "tile", "none", "geometry")
	case 4:
		parts = append(parts, fmt.Sprintf("located=%v", r.IntN(2) == 0))
	}
	if r.IntN(2) == 0 {
		pick("status", "pending", "redriving", "quarantined", "replayed", "abandoned")
	}
	if r.IntN(3) == 0 {
		parts = append(parts, "bbox="+randomBox(r).String())
	}
	if r.IntN(4) == 0 {
		pick("source", "s0", "s1", "s2")
	}
	if r.IntN(5) == 0 {
		parts = append(parts, fmt.Sprintf("group=g%d", r.IntN(7)), fmt.Sprintf("q=error+%d", r.IntN(7)))
	}
	if r.IntN(6) == 0 {
		parts = append(parts, fmt.Sprintf("prop=labels.orbit:%d", r.IntN(9)))
	}
	if r.IntN(6) == 0 {
		parts = append(parts, fmt.Sprintf("until=2026-01-01T%02d:30:00Z", 10+r.IntN(10)), "task=t1")
	}
	return strings.Join(parts, "&")
}

type box struct{ w, s, e, n float64 }

func (b box) String() string { return fmt.Sprintf("%v,%v,%v,%v", b.w, b.s, b.e, b.n) }

func (b box) holds(lon, lat float64) bool {
	if lat < b.s || lat > b.n {
		return false
	}
	if b.w <= b.e {
		return lon >= b.w && lon <= b.e
	}
	return lon >= b.w || lon <= b.e
}

// randomBox crosses the antimeridian as often as not, and often ends at it, at a
// pole or on a tile border, where letters lie.
func randomBox(r *rand.Rand) box {
	side := func(limit float64) float64 {
		switch r.IntN(5) {
		case 0:
			return limit
		case 1:
			return -limit
		case 2:
			return math.Round(r.Float64()*16-8) * limit / 8
		}
		return math.Round((r.Float64()*2-1)*limit*100) / 100
	}
	b := box{side(180), side(90), side(180), side(90)}
	b.s, b.n = min(b.s, b.n), max(b.s, b.n)
	return b
}

// tileCounts sums the counts of all tiles of a zoom, from the tiles themselves.
func (s *server) tileCounts(z int, query string) float64 {
	s.t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	sum := 0.0
	limit := make(chan struct{}, 8)
	for x := range 1 << z {
		for y := range 1 << z {
			group.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				a := s.get(fmt.Sprintf("/tiles/%d/%d/%d.mvt?%s", z, x, y, query))
				if a.status == 204 {
					return
				}
				if a.status != 200 {
					s.t.Errorf("tile %d/%d/%d: %d %s", z, x, y, a.status, a.body)
					return
				}
				n := countInTile(s.t, a.body)
				mu.Lock()
				defer mu.Unlock()
				sum += n
			})
		}
	}
	group.Wait()
	return sum
}

func TestEveryReaderSelectsTheSameLetters(t *testing.T) {
	t.Parallel()
	s := startCommand(t, "web", startServer(t, nil).env["DATABASE_URL"], nil)
	s.spread(3000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		query := randomFilter(r)
		stats := s.get("/v1/stats?" + query).json(t)
		total, located := stats["total"].(float64), stats["located"].(float64)
		keys := s.list("limit=1000&" + query)
		if float64(len(keys)) != total {
			t.Errorf("%s: the list has %d, stats %v", query, len(keys), total)
		}
		if n := float64(strings.Count(string(s.get("/export.geojson?"+query).body), `"type":"Feature",`)); n != total {
			t.Errorf("%s: the export has %v, stats %v", query, n, total)
		}
		if n := float64(strings.Count(string(s.get("/export.csv?"+query).body), "spread-")); n != total {
			t.Errorf("%s: the CSV has %v, stats %v", query, n, total)
		}
		zooms := []int{0, 3}
		if i%10 == 0 {
			zooms = append(zooms, 6)
		}
		for _, z := range zooms {
			if n := s.tileCounts(z, query); n != located {
				t.Errorf("%s: tiles of zoom %d count %v, stats %v located", query, z, n, located)
			}
		}
		page := s.do("GET", "/?"+query, map[string]string{"Accept": "text/html"}, nil)
		if page.status != 200 {
			t.Errorf("%s: the page answers %d", query, page.status)
		}
		filter := map[string]any{"everything": true}
		values := s.get("/v1/dead-letters?limit=1&" + query).json(t)
		for _, l := range values["links"].([]any) {
			if l := l.(map[string]any); l["rel"] == "self" {
				for name, v := range queryOf(l["href"].(string)) {
					if name != "limit" {
						filter[name] = v
					}
				}
			}
		}
		if preview := s.order(map[string]any{"filter": filter, "dry_run": true}, 200); preview["matched"] != total {
			t.Errorf("%s: the preview matches %v, stats %v", query, preview["matched"], total)
		}
	}
}

func TestTheBoxAgreesWithBruteForce(t *testing.T) {
	t.Parallel()
	s := startCommand(t, "web", startServer(t, nil).env["DATABASE_URL"], nil)
	s.spread(2000)
	type place struct{ lon, lat float64 }
	var places []place
	for _, f := range s.everyLetter() {
		if at, ok := properties(f)["anchor"].([]any); ok {
			places = append(places, place{at[0].(float64), at[1].(float64)})
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		b := randomBox(r)
		want := 0
		for _, p := range places {
			if b.holds(p.lon, p.lat) {
				want++
			}
		}
		a := s.get("/v1/dead-letters?limit=1&status=pending&status=redriving&status=quarantined&status=replayed&status=abandoned&bbox=" + b.String())
		if a.status != 200 {
			t.Fatalf("%v: %d %s", b, a.status, a.body)
		}
		if got := a.json(t)["numberMatched"].(float64); got != float64(want) {
			t.Errorf("%v selects %v, brute force %d", b, got, want)
		}
	}
}

func TestPagesMissAndDoubleNothingUnderConcurrentInserts(t *testing.T) {
	t.Parallel()
	s := startCommand(t, "web", startServer(t, nil).env["DATABASE_URL"], nil)
	s.exec(`insert into dead_letters (work_key, kind, source, stage, class, error, fingerprint, failed_at)
		select 'same-' || i, 'event', 'default', 'parse', 'unknown', 'e', 'g', '2026-01-01' from generate_series(1, 500) i`)
	stop := make(chan struct{})
	var inserting sync.WaitGroup
	inserting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				s.exec(`insert into dead_letters (work_key, kind, source, stage, class, error, fingerprint, failed_at)
					values ($1, 'event', 'default', 'parse', 'unknown', 'e', 'g', '2026-01-01')`, fmt.Sprintf("new-%d", i))
			}
		}
	})
	keys := s.list("limit=7")
	close(stop)
	inserting.Wait()
	seen := map[string]int{}
	for _, k := range keys {
		seen[k]++
	}
	for i := range 500 {
		if n := seen[fmt.Sprintf("same-%d", i+1)]; n != 1 {
			t.Errorf("same-%d is listed %d times", i+1, n)
		}
	}
}

func TestExportsAreHarmlessToSpreadsheets(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i, text := range []string{"=1+1", "+cmd", "-2+3", "@sum", "\t=1", "-12.5", "plain, \"quoted\"\nline"} {
		s.report(map[string]any{"work_key": fmt.Sprintf("k%d", i), "error": text, "run_id": text}, "")
	}
	csv := string(s.get("/export.csv").body)
	for _, want := range []string{"'=1+1", "'+cmd", "'-2+3", "'@sum", "'\t=1", ",-12.5,"} {
		if !strings.Contains(csv, want) {
			t.Errorf("the CSV lacks %q:\n%s", want, csv)
		}
	}
	for _, bad := range []string{",=1", ",+cmd", ",@sum"} {
		if strings.Contains(csv, bad) {
			t.Errorf("the CSV holds %q", bad)
		}
	}
}

func (s *server) everyLetter() []map[string]any {
	s.t.Helper()
	var export struct{ Features []map[string]any }
	if err := json.Unmarshal(s.get("/export.geojson?status=pending&status=redriving&status=quarantined&status=replayed&status=abandoned").body, &export); err != nil {
		s.t.Fatal(err)
	}
	return export.Features
}

func TestTheCommandLineRedrivesByTheSameFilters(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.outage(sink, 8)
	geodlq := func(args ...string) (string, error) {
		out := &syncBuffer{}
		err := run(t.Context(), args, func(name string) string { return s.env[name] }, out, out)
		return out.String(), err
	}
	if _, err := geodlq("redrive"); err == nil {
		t.Error("an empty filter was taken")
	}
	if _, err := geodlq("redrive", "-stage", "late"); err == nil {
		t.Error("a stage that is none was taken")
	}
	out, err := geodlq("redrive", "-bbox", "0,39,3.5,41", "-class", "upstream_error", "-class", "oom", "-dry-run")
	if err != nil || !strings.Contains(out, "4 can be taken") || s.statusOf(s.settle("out-000")["letter_id"]) != "pending" {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = geodlq("redrive", "--bbox=0,39,3.5,41", "--class=upstream_error")
	if err != nil || !strings.Contains(out, "is done") {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := s.count("select count(*) from dead_letters where status = 'replayed'"); n != 4 {
		t.Errorf("%d replayed", n)
	}
	if out, err = geodlq("quarantine", "-q", "503", "-reason", "later"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := s.count("select count(*) from dead_letters where status = 'quarantined' and reason = 'later'"); n != 4 {
		t.Errorf("%d quarantined\n%s", n, out)
	}
}

// deadEvents makes n dead events and their letters by SQL, ready to be redriven.
func (s *server) deadEvents(n int) {
	s.t.Helper()
	s.exec(`with e as (
			insert into events (work_key, source, task, body, size, sha256, media_type, state, job_id, finished_at)
			select 'bulk-' || i, 'default', '', b, octet_length(b), sha256(b), 'application/geo+json', 'dead', nextval('river_job_id_seq'), now()
			from generate_series(1, $1) i, lateral (select convert_to(format('{"type":"Point","coordinates":[%s,%s]}', i % 180, i % 80), 'UTF8') as b) q
			returning id, work_key, media_type, size, sha256)
		insert into dead_letters (work_key, kind, event_id, source, stage, class, error, fingerprint, anchor, geom, located_by, media_type, size, sha256)
		select work_key, 'event', id, 'default', 'downstream', 'upstream_error', 'the sink answered 503', 'bulk', p, p, 'geometry', media_type, size, sha256
		from e, lateral (select ST_SetSRID(ST_MakePoint(id % 180, id % 80), 4326) as p) q`, n)
}

func TestAnOrderThatIsKilledInTheMiddleGoesOnAndEnqueuesEachLetterOnce(t *testing.T) {
	t.Parallel()
	const n = 12_000
	s := startServer(t, nil)
	s.stop()
	s = startCommand(t, "web", s.env["DATABASE_URL"], nil)
	s.deadEvents(n)
	worker := s.startProcess("work", map[string]string{"GEODLQ_RESCUE_AFTER": "5s", "GEODLQ_SINK_TIMEOUT": "30s"})
	o := s.order(map[string]any{"filter": map[string]any{"group": "bulk"}}, 202)
	if o["eligible"] != float64(n) {
		t.Fatalf("%v", o)
	}
	s.eventually("some to be fed", func() bool {
		return s.count("select count(*) from redrive_letters where state <> 'waiting'") > 0
	})
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait()
	left := s.count("select count(*) from redrive_letters where state = 'waiting'")
	s.startProcess("work", map[string]string{"GEODLQ_RESCUE_AFTER": "5s", "GEODLQ_SINK_TIMEOUT": "30s"})
	deadline := time.Now().Add(3 * time.Minute)
	for s.orderState(o["id"])["state"] != "done" {
		if time.Now().After(deadline) {
			t.Fatalf("%v", s.orderState(o["id"])["counts"])
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("killed with %d of %d waiting", left, n)
	if left == 0 {
		t.Error("it was killed too late to prove anything")
	}
	if enqueued := s.count("select count(*) from dead_letter_history where action = 'redrive'"); enqueued != n {
		t.Errorf("%d letters were enqueued, want %d", enqueued, n)
	}
	if twice := s.count("select count(*) from (select 1 from dead_letter_history where action = 'redrive' group by letter_id having count(*) > 1) x"); twice != 0 {
		t.Errorf("%d letters were enqueued twice", twice)
	}
	if done := s.count("select count(*) from features"); done != n || s.count("select count(*) from dead_letters where status = 'replayed'") != n {
		t.Errorf("%d of %d are in features", done, n)
	}
}

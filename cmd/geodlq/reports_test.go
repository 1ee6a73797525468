package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func (s *server) report(fields map[string]any, key string) answer {
	s.t.Helper()
	body := map[string]any{"work_key": "tile-1", "task": "raster_tile", "error": "killed at 2.1 GiB"}
	for name, value := range fields {
		body[name] = value
		if value == nil {
			delete(body, name)
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	header := map[string]string{"Content-Type": "application/json"}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	return s.do("POST", "/v1/dead-letters", header, text)
}

func TestAReportMakesALetterAndLaterOnesAddAttempts(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	first := s.report(map[string]any{
		"source": "dem", "stage": "downstream", "class": "oom", "traceback": "Traceback…", "exit_code": 137,
		"tile": map[string]int{"z": 9, "x": 274, "y": 167}, "params": map[string]any{"resampling": "cubic"}, "labels": map[string]any{"orbit": 73},
		"payload": json.RawMessage(`{"b": 2,  "a":9007199254740993}`), "payload_ref": map[string]any{"uri": "s3://x", "window": []int{0, 0, 1, 1}, "nodata": -9999},
		"code_version": "v43", "run_id": "r", "host": "h", "log_url": "https://logs/1", "trace_id": "t", "event_time": "2026-01-02T03:04:05Z",
	}, "report-1")
	got := first.json(t)
	if first.status != 201 || got["work_key"] != "dem:tile-1" || got["attempts"] != 1.0 || got["duplicate"] != false {
		t.Fatalf("%d %s", first.status, first.body)
	}
	id := got["letter_id"]
	l := s.letter(id)
	p := properties(l)
	if p["kind"] != "geotask" || p["located_by"] != "tile" || l["geometry"] == nil || p["anchor"] == nil ||
		p["exit_code"] != 137.0 || p["labels"].(map[string]any)["orbit"] != 73.0 || p["stack"] != "Traceback…" || p["context_lost"] != false {
		t.Errorf("%v", l)
	}
	if got := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", id)); string(got.body) != `{"b":2,"a":9007199254740993}` && string(got.body) != `{"b": 2,  "a":9007199254740993}` {
		t.Errorf("payload %q", got.body)
	}
	if again := s.report(map[string]any{"source": "dem"}, "report-1"); again.status != 200 || again.json(t)["duplicate"] != true || again.json(t)["attempts"] != 1.0 {
		t.Errorf("the same report again: %d %s", again.status, again.body)
	}
	if other := s.report(map[string]any{"source": "dem", "work_key": "tile-2"}, "report-1"); other.status != 409 {
		t.Errorf("its key for another unit: %d %s", other.status, other.body)
	}
	if next := s.report(map[string]any{"source": "dem"}, "report-2"); next.status != 200 || next.json(t)["attempts"] != 2.0 || next.json(t)["letter_id"] != id {
		t.Errorf("another report: %d %s", next.status, next.body)
	}
	if p := properties(s.letter(id)); p["located_by"] != "tile" {
		t.Error("a report without a place took the place away")
	}
	if plain := s.report(map[string]any{"source": "dem"}, ""); plain.json(t)["attempts"] != 3.0 {
		t.Errorf("a report without a key: %s", plain.body)
	}
	if a := s.act(id, "redrive"); a.status != 409 || !strings.Contains(string(a.body), "owner") {
		t.Errorf("redrive of a geotask: %d %s", a.status, a.body)
	}
	if got := s.report(map[string]any{"class": nil, "work_key": "bare"}, ""); properties(s.letter(got.json(t)["letter_id"]))["class"] != "unknown" {
		t.Errorf("a bare report: %s", got.body)
	}
}

func TestAReportFollowsTheStatusOfItsLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_REDRIVE_CAP": "2"})
	for _, c := range []struct{ before, after string }{
		{"pending", "pending"}, {"quarantined", "quarantined"}, {"abandoned", "abandoned"}, {"replayed", "pending"}, {"redriving", "pending"},
	} {
		fields := map[string]any{"work_key": c.before}
		id := s.report(fields, "").json(t)["letter_id"]
		s.exec("update dead_letters set status = $1 where id = $2", c.before, int64(id.(float64)))
		s.report(fields, "")
		if p := properties(s.letter(id)); p["status"] != c.after || p["attempts"] != 2.0 {
			t.Errorf("%s: %v, want %s", c.before, p["status"], c.after)
		}
	}
	id := s.report(map[string]any{"work_key": "cap"}, "").json(t)["letter_id"]
	for range 2 {
		s.exec("update dead_letters set status = 'redriving' where id = $1", int64(id.(float64)))
		s.report(map[string]any{"work_key": "cap"}, "")
	}
	if p := properties(s.letter(id)); p["status"] != "quarantined" || p["redrives"] != 2.0 {
		t.Errorf("at the cap: %v", p)
	}
}

func TestAReportIsLocatedByWhatItTells(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i, c := range []struct {
		fields    map[string]any
		locatedBy string
		lon, lat  float64
	}{
		{map[string]any{"geometry": json.RawMessage(`{"type":"Point","coordinates":[13.4,52.5]}`)}, "geometry", 13.4, 52.5},
		{map[string]any{"geometry": json.RawMessage(`{"type":"Point","coordinates":[1489199.33,6894701.26]}`), "src_crs": "EPSG:3857"}, "geometry", 13.3777, 52.5163},
		{map[string]any{"geometry": "POINT(13.4 52.5)"}, "geometry", 13.4, 52.5},
		{map[string]any{"geometry": json.RawMessage(`{"type":"Point","coordinates":[1489199.33,6894701.26]}`)}, "none", 0, 0},
		{map[string]any{"geometry": json.RawMessage(`{"type":"Polygon","coordinates":[[[0,0],[1,1]]]}`)}, "none", 0, 0},
		{map[string]any{"geometry": json.RawMessage(`{"type":"Point"}`), "tile": map[string]int{"z": 1, "x": 1, "y": 0}}, "tile", 90, 42.52556},
		{map[string]any{"bounds": []float64{10, 50, 12, 52}}, "tile", 11, 51},
		{map[string]any{"bounds": []float64{500000, 4600000, 600000, 4700000}, "src_crs": "EPSG:32633"}, "tile", 15.6, 42},
		{map[string]any{"bounds": []float64{179, -1, -179, 1}}, "tile", 179.5, 0},
		{map[string]any{"geometry": nil}, "none", 0, 0},
	} {
		c.fields["work_key"] = fmt.Sprintf("place-%d", i)
		a := s.report(c.fields, "")
		if a.status != 201 {
			t.Errorf("%v: %d %s", c.fields, a.status, a.body)
			continue
		}
		p := properties(s.letter(a.json(t)["letter_id"]))
		if p["located_by"] != c.locatedBy {
			t.Errorf("%v: located by %v, want %s", c.fields, p["located_by"], c.locatedBy)
			continue
		}
		if c.locatedBy == "none" {
			if p["anchor"] != nil {
				t.Errorf("%v: anchor %v", c.fields, p["anchor"])
			}
			continue
		}
		at := p["anchor"].([]any)
		if lon, lat := at[0].(float64), at[1].(float64); abs(lon-c.lon) > 0.2 || abs(lat-c.lat) > 0.6 {
			t.Errorf("%v: anchor %v, want near %v %v", c.fields, at, c.lon, c.lat)
		}
	}
	if n := s.count("select count(*) from dead_letters where source_wkb is not null or source_geometry is not null"); n != 6 {
		t.Errorf("%d letters keep their geometry as sent, want 6", n)
	}
}

func abs(v float64) float64 { return max(v, -v) }

func TestAReportThatCannotBeTakenSaysWhy(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, c := range []struct {
		fields map[string]any
		status int
		field  string
	}{
		{map[string]any{"work_key": nil}, 422, "work_key"}, {map[string]any{"task": nil}, 422, "task"}, {map[string]any{"error": nil}, 422, "error"},
		{map[string]any{"error": "  "}, 422, "error"}, {map[string]any{"work_key": "a#0"}, 400, "work_key"}, {map[string]any{"source": "a:b"}, 400, "source"},
		{map[string]any{"stage": "late"}, 422, "stage"}, {map[string]any{"class": "odd"}, 422, "class"}, {map[string]any{"work_key": 5}, 422, "work_key"},
		{map[string]any{"tile": map[string]int{"z": 1, "x": 2, "y": 0}}, 422, "tile"}, {map[string]any{"tile": map[string]int{"z": 1}}, 422, "tile"},
		{map[string]any{"bounds": []int{1, 2, 3}}, 422, "bounds"}, {map[string]any{"bounds": []int{0, 5, 1, 4}}, 422, "bounds"},
		{map[string]any{"params": []int{1}}, 422, "params"}, {map[string]any{"event_time": "yesterday"}, 422, "event_time"},
		{map[string]any{"event_time": 5}, 422, "event_time"}, {map[string]any{"event_time": "9999-12-31T23:59:59-23:59"}, 422, "event_time"},
		{map[string]any{"event_time": "0000-01-01T00:00:00+23:59"}, 422, "event_time"}, {map[string]any{"http_status": 1 << 40}, 422, "http_status"},
		{map[string]any{"bounds": []any{nil, 0, 1, 1}}, 422, "bounds"}, {map[string]any{"bounds": "0,0,1,1"}, 422, "bounds"},
		{map[string]any{"bounds": make([]int, 100_000)}, 422, "bounds"}, {map[string]any{"params": map[string]any{"a": strings.Repeat("x", 64<<10)}}, 422, "params"}, {map[string]any{"tile": map[string]any{"z": "1", "x": 0, "y": 0}}, 422, "tile.z"},
	} {
		a := s.report(c.fields, "")
		if a.status != c.status || !strings.Contains(string(a.body), `"field":"`+c.field+`"`) {
			t.Errorf("%v: %d %s", c.fields, a.status, a.body)
		}
	}
	for _, body := range []string{"", "[]", "null", "{", "{} {}", "\xff", `{"work_key":"a\u0000b","task":"t","error":"e"}`} {
		if a := s.do("POST", "/v1/dead-letters", nil, []byte(body)); a.status != 400 && a.status != 422 {
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
	}
	// Hostile, but a failure all the same.
	a := s.do("POST", "/v1/dead-letters", nil, []byte(`{"work_key":"h","task":"<script>","error":"nul \u0000 lone \ud800","traceback":"\u0000",`+
		`"exit_code":3221225477,"params":{"a\u0000":"b\u0000","l":"\ud800","n":1e999999,"m":-1E-999999},"labels":{"x":"\u0000"},"payload":"\u0000","geometry":{"type":"Point","coordinates":[1e400,0]},"unheard_of":1}`))
	if a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := s.count("select count(*) from dead_letters"); n != 1 {
		t.Errorf("%d letters", n)
	}
}

func TestAReportOfAnEventsKeyCountsOnItsLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.exec("alter table features rename to features_away")
	s.post("k", berlin)
	id := s.settle("k")["letter_id"]
	s.exec("alter table features_away rename to features")
	if a := s.report(map[string]any{"work_key": "k"}, ""); a.status != 200 || a.json(t)["attempts"] != 2.0 || a.json(t)["letter_id"] != id {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.act(id, "redrive")
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	// Reopened by a report, it can be redriven again.
	s.report(map[string]any{"work_key": "k"}, "")
	if got := s.statusOf(id); got != "pending" {
		t.Fatalf("%s", got)
	}
	if a := s.act(id, "redrive"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.eventually("the letter to be replayed again", func() bool { return s.statusOf(id) == "replayed" })
	// And an event whose key is a geotask's dies into the one letter there is.
	s.report(map[string]any{"work_key": "both"}, "")
	s.post("both", bowtie)
	p := properties(s.letter(s.settle("both")["letter_id"]))
	if p["kind"] != "event" || p["attempts"] != 2.0 {
		t.Errorf("%v", p)
	}
}

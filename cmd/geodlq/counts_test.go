package main

import (
	"context"
	"strings"
	"testing"
)

func TestCountsAreVerifiedAndRebuiltByACommand(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.deadEvents(200)
	if out, err := s.command("counts", "verify"); err != nil || !strings.Contains(out, "right about 200 letters") {
		t.Errorf("%s %v", out, err)
	}
	s.exec("insert into letter_deltas (facet, cell, failed_at, attempts) select facet, cell, failed_at, attempts from dead_letters limit 1")
	if out, err := s.command("counts", "verify"); err == nil || !strings.Contains(err.Error(), "wrong about 1 kinds") {
		t.Errorf("%s %v", out, err)
	}
	if out, err := s.command("counts", "rebuild"); err != nil || !strings.Contains(out, "of 200 letters") {
		t.Errorf("%s %v", out, err)
	}
	if out, err := s.command("counts", "verify"); err != nil || !strings.Contains(out, "right about 200 letters") {
		t.Errorf("%s %v", out, err)
	}
	if _, err := s.command("counts"); err == nil {
		t.Error("counts of nothing")
	}
}

func TestATileThatDidNotChangeIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	other := webOnly(t, s.env["DATABASE_URL"])
	s.deadEvents(300)
	const world, corner = "/tiles/0/0/0.mvt?source=default", "/tiles/9/0/0.mvt"
	first := s.get(world)
	if n := countInTile(t, first.body); n != 300 {
		t.Fatalf("%v letters", n)
	}
	again := func(on *server, path string, a answer) int {
		return on.do("GET", path, map[string]string{"If-None-Match": a.header.Get("ETag")}, nil).status
	}
	s.eventually("the log to be folded", func() bool { return s.count("select count(*) from letter_deltas") == 0 })
	first = s.get(world)
	empty := s.get(corner)
	// Without the blocks a tile would be another one: nobody may ask.
	s.exec("alter table letter_blocks rename to mislaid_letter_blocks")
	for _, on := range []*server{s, other} {
		if status := again(on, world, first); status != 304 {
			t.Errorf("again: %d", status)
		}
		if status := again(on, corner, empty); status != 304 {
			t.Errorf("an empty one again: %d", status)
		}
		if status := again(on, "/tiles/0/0/0.mvt", first); status == 304 {
			t.Error("another filter has the same tag")
		}
	}
	s.exec("alter table mislaid_letter_blocks rename to letter_blocks")
	s.exec("update dead_letters set status = 'abandoned' where id = (select max(id) from dead_letters)")
	if status := again(other, world, first); status != 200 {
		t.Errorf("after a change: %d", status)
	}
	if n := countInTile(t, other.get(world).body); n != 299 {
		t.Errorf("%v letters", n)
	}
	if status := again(other, corner, empty); status != 304 {
		t.Errorf("after a change elsewhere: %d", status)
	}
}

// slow makes every look at letters wait until the test ends.
func (s *server) slow() {
	s.t.Helper()
	tx, err := s.db.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(s.t.Context(), "lock table dead_letters in access exclusive mode"); err != nil {
		s.t.Fatal(err)
	}
}

func TestAFilterThatTakesTooLongSaysSo(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_READ_TIMEOUT": "50ms"})
	s.deadEvents(10)
	s.eventually("the letters to be folded", func() bool { return s.count("select count(*) from letter_deltas") == 0 })
	s.slow()
	for _, path := range []string{"/v1/stats?q=needle", "/v1/dead-letters?q=needle", "/tiles/0/0/0.mvt?q=needle", "/tiles.json",
		"/export.csv?q=needle", "/export.geojson?prop=labels.a:b"} {
		a := s.get(path)
		if a.status != 422 || !strings.Contains(string(a.body), "Narrow it down") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.do("GET", "/?q=needle", map[string]string{"Accept": "text/html"}, nil); a.status != 422 || !strings.Contains(string(a.body), "Narrow it down") {
		t.Errorf("the page: %d", a.status)
	}
	order := s.do("POST", "/v1/redrives", map[string]string{"Content-Type": "application/json"}, []byte(`{"filter":{"q":"needle"}}`))
	if order.status != 422 || !strings.Contains(string(order.body), "Narrow it down") {
		t.Errorf("an order: %d %s", order.status, order.body)
	}
	// Counts don't look at letters.
	if n := countInTile(t, s.get("/tiles/0/0/0.mvt").body); n != 10 {
		t.Errorf("%v letters", n)
	}
}

// TestATileOfAnotherDatabaseIsNoneOfThisOne asks a database that was made anew by the
// ETag of the one before, which had seen as many letters.
func TestATileOfAnotherDatabaseIsNoneOfThisOne(t *testing.T) {
	t.Parallel()
	var before string
	for _, lon := range []float64{-100, 100} {
		s := startServer(t, nil)
		s.report(map[string]any{"work_key": "k", "geometry": map[string]any{"type": "Point", "coordinates": []float64{lon, 10}}}, "")
		s.eventually("the log to be folded", func() bool { return s.count("select count(*) from letter_deltas") == 0 })
		a := s.do("GET", "/tiles/0/0/0.mvt", map[string]string{"If-None-Match": before}, nil)
		if a.status != 200 || a.header.Get("ETag") == "" {
			t.Errorf("%d, ETag %q", a.status, a.header.Get("ETag"))
		}
		before = a.header.Get("ETag")
	}
}

package main

import (
	"fmt"
	"maps"
	"os/exec"
	"testing"
)

// rewind stops a server, lets its files be what they were when they were kept under a name
// (or keeps them, if they were not), and starts it.
func (p *postgres) rewind(name string) {
	p.t.Helper()
	p.stop(fast)
	kept := p.data + "-" + name
	script := fmt.Sprintf("if [ -d %[2]s ]; then rm -r %[1]s && cp -a %[2]s %[1]s; else cp -a %[1]s %[2]s; fi", p.data, kept)
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	p.t.Cleanup(func() { _ = exec.Command("rm", "-r", kept).Run() })
	p.start()
}

// fail inserts letters of sources, at a place of their own, and waits until they are folded.
func (s *server) fail(n int, lon float64, sources ...string) {
	s.t.Helper()
	s.exec(`insert into dead_letters (work_key, kind, task, source, stage, class, error, fingerprint, anchor, geom, located_by)
		select source || i, 'event', '', source, 'parse', 'oom', 'error', source, p, p, 'geometry'
		from unnest($2::text[]) source, generate_series(1, $1) i, ST_SetSRID(ST_MakePoint($3, 10), 4326) p`, n, sources, lon)
	s.eventually("the log to be folded", func() bool { return s.count("select count(*) from letter_deltas") == 0 })
}

// TestCountsAndTilesAreRightThoughTheDatabaseGoesBackInTime restores an older copy under
// running processes, twice, and writes others in the same order, so that all ids that a
// sequence gives out come again.
func TestCountsAndTilesAreRightThoughTheDatabaseGoesBackInTime(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	s := startCommand(t, "serve", pg.cluster.URL(), nil)
	rewind := func() {
		pg.rewind("kept")
		s.db.Reset()
		s.eventually("the server to be ready", func() bool { return s.get("/readyz").status == 200 })
	}
	s.fail(3, 10, "a", "b")
	rewind()

	var tag string
	check := func(want map[string]float64) {
		t.Helper()
		located, causes := 0.0, map[string]float64{}
		for _, g := range s.get("/v1/stats").json(t)["groups"].([]any) {
			group := g.(map[string]any)
			causes[group["group"].(string)] = group["count"].(float64)
		}
		for _, n := range want {
			located += n
		}
		if !maps.Equal(causes, want) {
			t.Errorf("causes %v, want %v", causes, want)
		}
		a := s.do("GET", "/tiles/0/0/0.mvt", map[string]string{"If-None-Match": tag}, nil)
		if a.status != 200 {
			t.Fatalf("a tile of other letters: %d", a.status)
		}
		if n := countInTile(t, a.body); n != located {
			t.Errorf("%v letters in the tile, want %v", n, located)
		}
		tag = a.header.Get("ETag")
	}
	s.fail(5, 20, "x", "y", "z")
	check(map[string]float64{"a": 3, "b": 3, "x": 5, "y": 5, "z": 5})

	rewind()
	check(map[string]float64{"a": 3, "b": 3})
	s.fail(4, 20, "z", "q", "x", "y")
	check(map[string]float64{"a": 3, "b": 3, "q": 4, "x": 4, "y": 4, "z": 4})

	rewind()
	s.fail(7, 20, "r", "z", "s")
	check(map[string]float64{"a": 3, "b": 3, "r": 7, "s": 7, "z": 7})
	if out, err := s.command("counts", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if out, err := s.command("counts", "rebuild"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	s.exec("delete from dead_letters where source = 's'")
	check(map[string]float64{"a": 3, "b": 3, "r": 7, "z": 7})
	if out, err := s.command("counts", "rebuild"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if n := s.count("select max(id) from facets"); n != 4 {
		t.Errorf("%d kinds of letters are known after a rebuild, want 4", n)
	}
	s.fail(2, 30, "n")
	check(map[string]float64{"a": 3, "b": 3, "r": 7, "z": 7, "n": 2})
}

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"geodlq/internal/store"
)

// benchLetters is how many open letters the page is measured at.
const benchLetters = 100_000

// median of some runs of fn, in milliseconds.
func median(runs int, fn func() time.Duration) float64 {
	took := make([]time.Duration, runs)
	for i := range took {
		took[i] = fn()
	}
	slices.Sort(took)
	return float64(took[runs/2].Microseconds()) / 1000
}

// timed is how long the first byte and the whole of an answer take.
func (s *server) timed(path string) (first, whole time.Duration, size int) {
	s.t.Helper()
	began := time.Now()
	request, _ := http.NewRequest("GET", s.url+path, nil)
	request.Header.Set("Accept", "text/html")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var one [1]byte
	_, _ = io.ReadFull(response.Body, one[:])
	first = time.Since(began)
	rest, _ := io.Copy(io.Discard, response.Body)
	return first, time.Since(began), int(rest) + 1
}

// BenchmarkTriagePage measures the page with 100,000 open letters, in a real
// browser where the figure is one of a browser. It runs once: -benchtime=1x.
func BenchmarkTriagePage(b *testing.B) {
	s := startServer(b, nil)
	if err := store.New(s.db, nil, store.Rules{}).Seed(b.Context(), benchLetters); err != nil {
		b.Fatal(err)
	}
	s.exec("update dead_letters set status = 'pending', resolved_at = null")
	s.exec("vacuum full analyze dead_letters")
	s.post("five-megabytes", `{"type":"Feature","properties":{"x":"`+strings.Repeat("payload ", 5<<20/8)+`"},"geometry":{"type":"Polygon","coordinates":[[[10,50],[12,52],[12,50],[10,52],[10,50]]]}}`)
	large := s.settle("five-megabytes")["letter_id"]
	for b.Loop() {
		s.timed("/")
		var size int
		b.ReportMetric(median(9, func() time.Duration { f, _, n := s.timed("/"); size = n; return f }), "ms/first-byte")
		b.ReportMetric(float64(size)/1000, "kB/html")
		b.ReportMetric(median(9, func() time.Duration { _, w, _ := s.timed("/?class=oom"); return w }), "ms/filtered")
		b.ReportMetric(median(9, func() time.Duration { _, w, _ := s.timed("/tiles/0/0/0.mvt"); return w }), "ms/world-tile")
		b.ReportMetric(median(5, func() time.Duration { _, w, _ := s.timed(fmt.Sprintf("/letters/%.0f", large)); return w }), "ms/letter-5MB")
		b.ReportMetric(ownScripts(b)/1000, "kB/own-js-gz")
		p := s.newPage(b, 1440, 900)
		p.open("/")
		b.ReportMetric(median(5, func() time.Duration {
			began := time.Now()
			p.open("/")
			p.mapReady()
			return time.Since(began)
		}), "ms/map-idle")
		classes := []string{"oom", "unknown", "upstream_error", "malformed_payload", "upstream_timeout"}
		b.ReportMetric(median(len(classes), func() time.Duration {
			class := classes[0]
			classes = classes[1:]
			at := p.middle(fmt.Sprintf(`#filters a[href*="class=%s"]`, class))
			p.hover(at.X, at.Y)
			js[bool](p, fmt.Sprintf(followed, class))
			p.clickAt(at)
			p.until("the list to follow", func() bool { return js[bool](p, "window.seen > 0") })
			took := js[float64](p, "window.seen - window.clicked")
			p.open("/?map=3/44/5")
			p.mapReady()
			return time.Duration(took * float64(time.Millisecond))
		}), "ms/filter-click")
	}
}

// followed notes, by the page's own clock, when a click came and when the list and
// the charts that it asked for had been drawn.
const followed = `window.seen = 0;
	document.addEventListener("click", () => window.clicked = performance.now(), {capture: true, once: true});
	new MutationObserver((_, observer) => {
		if (!document.querySelector("#list .chips")?.innerText.includes(%q)) return;
		observer.disconnect();
		requestAnimationFrame(() => setTimeout(() => window.seen = performance.now()));
	}).observe(document.body, {childList: true, subtree: true}); true`

// ownScripts is the gzipped size of our scripts without MapLibre.
func ownScripts(b *testing.B) float64 {
	var total float64
	scripts, err := filepath.Glob("../../static/dist/*.js")
	if err != nil || len(scripts) == 0 {
		b.Fatal("no scripts")
	}
	for _, script := range scripts {
		if strings.HasPrefix(filepath.Base(script), "maplibre") {
			continue
		}
		text, err := os.ReadFile(script)
		if err != nil {
			b.Fatal(err)
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(text)
		_ = w.Close()
		total += float64(zipped.Len())
	}
	return total
}

// BenchmarkOrder measures an order of 100,000 letters: previewed and frozen,
// started, its first job, all replayed. It runs once: -benchtime=1x.
func BenchmarkOrder(b *testing.B) {
	s := startServer(b, nil)
	s.deadEvents(benchLetters)
	s.exec("vacuum analyze dead_letters, events")
	for b.Loop() {
		began := time.Now()
		o := s.order(map[string]any{"filter": map[string]any{"group": "bulk"}, "dry_run": true}, 200)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/preview")
		began = time.Now()
		if a := s.do("POST", fmt.Sprintf("/v1/redrives/%.0f/start", o["id"]), nil, nil); a.status != 200 {
			b.Fatalf("%d %s", a.status, a.body)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/start")
		for s.count("select count(*) from (select 1 from features limit 1) x") == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first-job")
		for s.orderState(o["id"])["state"] != "done" {
			time.Sleep(100 * time.Millisecond)
		}
		b.ReportMetric(benchLetters/time.Since(began).Seconds(), "replayed/s")
	}
}

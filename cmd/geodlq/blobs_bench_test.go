package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"geodlq/internal/dlq"
	"geodlq/internal/store"
)

// Letters of BenchmarkLargePayloads, and of its baseline, whose payloads the disk
// has to bear.
const (
	largeLetters    = 12_000
	baselineLetters = 500
	payloadBytes    = 1_400_000
)

// largePayloads are distinct events of payloadBytes each, which all fail: half for
// their large geometry, one of a large geometry that the sink refuses, the others of
// large properties and a small geometry.
func largePayloads() map[string]string {
	const point = `"geometry":{"type":"Point","coordinates":[10,5]}}`
	samples := strings.TrimSuffix(strings.Repeat("98765.4321,", payloadBytes/11), ",")
	all := map[string]string{
		"crossed-1": coast(5, true), "crossed-2": coast(7, true), "crossed-3": coast(11, true), "refused": coast(13, false),
		"samples-bad":     `{"type":"Feature","properties":{"samples":[` + samples + `]},` + strings.SplitN(bowtie, `"properties":{},`, 2)[1],
		"samples-refused": `{"type":"Feature","properties":{"samples":[` + samples + `],"n":1},` + point,
	}
	for name, body := range all {
		all[name] = padded(body, max(payloadBytes-len(body), 0))
	}
	return all
}

// coast is a feature whose outline is ragged at every scale, with some bays; crossed,
// it crosses itself.
func coast(bays int, crossed bool) string {
	const vertices = 60_000
	ring := make([]string, vertices)
	for i := range ring {
		angle := 2 * math.Pi * float64(i) / vertices
		r := 1.0
		for k, size := 1.0, 0.2; k < 3000; k, size = k*3.7, size/3 {
			r += size * math.Sin(k*float64(bays)*angle+k)
		}
		ring[i] = fmt.Sprintf("[%.7f,%.7f]", 10+r*math.Cos(angle), 5+r*math.Sin(angle))
	}
	if crossed {
		ring[10], ring[vertices/3] = ring[vertices/3], ring[10]
	}
	return fmt.Sprintf(`{"type":"Feature","properties":{"bays":%d},"geometry":{"type":"Polygon","coordinates":[[%s]]}}`, bays, strings.Join(append(ring, ring[0]), ","))
}

// captureLarge has the payloads fail for real, so that their letters are what
// capture makes.
func (s *server) captureLarge() {
	s.t.Helper()
	s.exec("alter table features rename to features_away")
	for key, body := range largePayloads() {
		if a := s.post(key, body); a.status != 202 {
			s.t.Fatalf("%s: %d %s", key, a.status, a.body)
		}
	}
	for key := range largePayloads() {
		if e := s.settle(key); e["state"] != "dead" {
			s.t.Fatalf("%s: %v", key, e)
		}
	}
}

// letterCopySQL makes letter after letter of those that capture made, moved in space
// and time: over the world, and over 30 days, the younger the more. $1 of them in
// all; $2 keeps the payload in the letter.
const letterCopySQL = `
with model as (
	select row_number() over (order by id) as n, count(*) over () as of, d.* from dead_letters d
), copy as (
	select i, m.*, (hashint8(i) % 150)::float8 as dx, (hashint8(i * 7) % 70)::float8 - 5 as dy,
		now() - interval '30 days' * power(((hashint8(i * 13)::bigint & 65535) / 65536.0), 3) as at
	from generate_series(1, $1 - (select count(*) from model)) i join model m on m.n = 1 + i % m.of
), event as (
	insert into events (work_key, source, task, body, blob, size, sha256, media_type, headers, state, job_id, tries, received_at, finished_at)
	select c.work_key || '-' || i, e.source, e.task, case when not $2::boolean then e.body end, e.blob, e.size, e.sha256, e.media_type, e.headers, 'dead', nextval('river_job_id_seq'), e.tries, at, at
	from copy c join events e on e.id = c.event_id
	returning id, work_key
)
insert into dead_letters (work_key, kind, event_id, task, source, stage, class, error, fingerprint, tries, attempts, context_lost,
	geom, geom_simplified, anchor, located_by, src_crs, geom_hash, invalid_at, payload, payload_json, media_type, size, sha256, first_failed_at, failed_at)
select e.work_key, c.kind, e.id, c.task, c.source, c.stage, c.class, c.error, c.fingerprint, c.tries, c.attempts, c.context_lost,
	ST_Translate(c.geom, dx, dy), c.geom_simplified, ST_Translate(c.anchor, dx, dy), c.located_by, c.src_crs, c.geom_hash, ST_Translate(c.invalid_at, dx, dy),
	case when $2::boolean then b.body end, c.payload_json, c.media_type, c.size, c.sha256, at, at
from copy c join event e on e.work_key = c.work_key || '-' || i join events b on b.id = c.event_id`

// largeFigures are what BenchmarkLargePayloads measures of one way to keep payloads.
type largeFigures struct {
	row, table, events float64 // bytes: of a letter, of dead_letters and of events with TOAST and indexes
	inBox              float64 // milliseconds, median
}

func (s *server) measureLarge(letters int) (f largeFigures) {
	s.t.Helper()
	s.exec("vacuum analyze dead_letters, events")
	err := s.db.QueryRow(s.t.Context(), `select (select avg(pg_column_size(d.*)) from dead_letters d)::float8,
		pg_total_relation_size('dead_letters')::float8, pg_total_relation_size('events')::float8`).Scan(&f.row, &f.table, &f.events)
	if err != nil {
		s.t.Fatal(err)
	}
	since := time.Now().Add(-time.Hour)
	filter := dlq.Filter{BBox: &dlq.Box{West: -20, South: -10, East: 60, North: 60}, Since: &since}
	st := store.New(s.db, nil, store.Rules{})
	found := 0
	f.inBox = median(101, func() time.Duration {
		began := time.Now()
		page, err := st.Letters(s.t.Context(), filter, nil, pageLetters)
		if err != nil {
			s.t.Fatal(err)
		}
		found = len(page.Letters)
		return time.Since(began)
	})
	if found == 0 {
		s.t.Fatalf("nothing of %d letters failed in the box in the last hour, so the time proves nothing", letters)
	}
	return f
}

// pageLetters is how many letters the page lists.
const pageLetters = 50

// BenchmarkLargePayloads measures what 12,000 letters with payloads of 1.4 MB cost in
// the database, and the question of an incident, "which failed in this box in the
// last hour", beside letters that hold their payloads. Six events fail for real; the
// letters are copies of theirs, over the world and 30 days, which share six blobs. It
// runs once: -benchtime=1x.
func BenchmarkLargePayloads(b *testing.B) {
	settings := map[string]string{"GEODLQ_SINK_TIMEOUT": "30s", "GEODLQ_MAX_ATTEMPTS": "1"}
	s := startServer(b, settings)
	s.captureLarge()
	s.exec(letterCopySQL, largeLetters, false)
	for b.Loop() {
		f := s.measureLarge(largeLetters)
		b.ReportMetric(f.row, "B/row")
		b.ReportMetric(f.table/1e6, "MB/dead_letters")
		b.ReportMetric(f.events/1e6, "MB/events")
		b.ReportMetric(f.inBox, "ms/in-box")
	}
	s.stop()
	settings["GEODLQ_INLINE_MAX"] = "8MiB"
	s = startServer(b, settings)
	s.captureLarge()
	s.exec(letterCopySQL, baselineLetters, true)
	f := s.measureLarge(baselineLetters)
	b.ReportMetric(f.table/1e6, fmt.Sprintf("MB/dead_letters-inline-%d", baselineLetters))
	b.ReportMetric(f.inBox, fmt.Sprintf("ms/in-box-inline-%d", baselineLetters))
}

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// ledger is what GET /v1/ledger tells of one source today, its figures by name.
func (s *server) ledger(source string) map[string]any {
	s.t.Helper()
	a := s.get("/v1/ledger?source=" + source)
	if a.status != 200 {
		s.t.Fatalf("ledger: %d %s", a.status, a.body)
	}
	days := a.json(s.t)["days"].([]any)
	if len(days) != 1 {
		s.t.Fatalf("ledger of %s: %s", source, a.body)
	}
	return days[0].(map[string]any)
}

// wantLedger compares figures of a source, those that are not named with 0, and
// wants the check to find nothing.
func (s *server) wantLedger(when, source string, want map[string]float64) {
	s.t.Helper()
	got := s.ledger(source)
	for _, name := range []string{"received", "processed", "dead", "in_flight", "duplicates", "spooled", "reports", "reports_repeated"} {
		if got[name] != want[name] {
			s.t.Errorf("%s: %s is %v, want %v (%v)", when, name, got[name], want[name], got)
		}
	}
	if got["adds_up"] != true {
		s.t.Errorf("%s: it does not add up: %v", when, got)
	}
	if text := s.checkLedger(); !strings.Contains(text, "adds up") {
		s.t.Errorf("%s: %s", when, text)
	}
}

// command runs a command on the server's database.
func (s *server) command(args ...string) (string, error) {
	var out syncBuffer
	err := run(context.Background(), args, func(name string) string { return s.env[name] }, &out, s.log)
	return out.String(), err
}

// checkLedger runs the check as the command does.
func (s *server) checkLedger() string {
	s.t.Helper()
	out, err := s.command("ledger", "-check")
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}

const (
	goodFeature = `{"type":"Feature","properties":{},"geometry":{"type":"Point","coordinates":[13.4,52.5]}}`
	badFeature  = `{"type":"Feature","properties":{},"geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}}`
)

func from(source, key string) map[string]string {
	return map[string]string{"Content-Type": "application/geo+json", "Geodlq-Source": source, "Idempotency-Key": key}
}

func TestTheLedgerSaysWhatAClientCounted(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "64KiB"})
	send := func(key, body string, want int) {
		t.Helper()
		if a := s.do("POST", "/v1/events", from("fleet", key), []byte(body)); a.status != want {
			t.Fatalf("%s: %d %s, want %d", key, a.status, a.body, want)
		}
	}
	for i := range 7 {
		send(fmt.Sprint("good-", i), goodFeature, 202)
	}
	for i := range 3 {
		send(fmt.Sprint("bad-", i), badFeature, 202)
		s.settle(fmt.Sprint("fleet:bad-", i))
	}
	for i := range 7 {
		s.settle(fmt.Sprint("fleet:good-", i))
	}
	s.wantLedger("good and dead", "fleet", map[string]float64{"received": 10, "processed": 7, "dead": 3})

	send("all", `{"type":"FeatureCollection","features":[`+goodFeature+","+badFeature+","+goodFeature+`]}`, 202)
	s.settle("fleet:all")
	s.wantLedger("a collection is its features", "fleet", map[string]float64{"received": 13, "processed": 9, "dead": 4})

	send("good-0", goodFeature, 202)
	send("all", `{"type":"FeatureCollection","features":[`+goodFeature+","+badFeature+","+goodFeature+`]}`, 202)
	s.wantLedger("duplicates", "fleet", map[string]float64{"received": 15, "processed": 9, "dead": 4, "duplicates": 2})

	send("good-0", badFeature, 409)
	send("good-1", badFeature, 409)
	send("large", strings.Repeat(" ", 70_000), 413)
	send("not#a#key", goodFeature, 400)
	batch := from("fleet", "good")
	batch["Content-Type"] = "application/x-ndjson"
	for _, status := range []int{202, 202} {
		if a := s.do("POST", "/v1/events", batch, []byte(goodFeature+"\n"+badFeature)); a.status != status {
			t.Fatalf("batch: %d %s", a.status, a.body)
		}
	}
	a := s.do("POST", "/v1/events", batch, []byte(badFeature+"\n"+badFeature+"\n"+goodFeature))
	if rejected := a.json(t)["rejected"].([]any); len(rejected) != 1 {
		t.Fatalf("batch: %s", a.body)
	}
	for i := range 3 {
		s.settle(fmt.Sprint("fleet:good#", i))
	}
	// A record of its own again, two repeated, then one refused, one repeated, one new.
	s.wantLedger("a batch", "fleet", map[string]float64{"received": 21, "processed": 11, "dead": 5, "duplicates": 5})
	s.eventually("the refusals to be written", func() bool {
		refused := s.ledger("fleet")["refused"].(map[string]any)
		return refused["409"] == 3.0 && refused["413"] == 1.0 && refused["400"] == 1.0 && len(refused) == 3
	})
}

func TestTheLedgerFollowsWhatIsDoneToALetter(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	sink.status(503)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_UNDO_WINDOW": "1m"})
	s.post("k", goodFeature)
	id := s.settle("k")["letter_id"]
	s.wantLedger("dead", "default", map[string]float64{"received": 1, "dead": 1})

	act := func(verb string, want int) {
		t.Helper()
		if a := s.do("POST", fmt.Sprintf("/v1/dead-letters/%.0f/%s", id, verb), map[string]string{"Content-Type": "application/json"}, []byte(`{"reason":"test"}`)); a.status != want {
			t.Fatalf("%s: %d %s", verb, a.status, a.body)
		}
	}
	act("quarantine", 200)
	s.wantLedger("quarantined", "default", map[string]float64{"received": 1, "dead": 1})
	act("release", 200)
	act("redrive", 200)
	s.wantLedger("redriving", "default", map[string]float64{"received": 1, "in_flight": 1})
	act("undo", 200)
	s.wantLedger("taken back", "default", map[string]float64{"received": 1, "dead": 1})
}

func TestForgettingKeepsTheLedger(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i := range 5 {
		s.post(fmt.Sprint("k-", i), goodFeature)
		s.settle(fmt.Sprint("k-", i))
	}
	if _, err := store.New(s.db, nil, store.Rules{}).Forget(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if n := s.count("select count(*) from events"); n != 0 {
		t.Fatalf("%d events are left", n)
	}
	s.wantLedger("forgotten", "default", map[string]float64{"received": 5, "processed": 5})
}

func TestReportsStandBesideTheLedgersSum(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	report := func(key, body string, want int) {
		t.Helper()
		if a := s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json", "Idempotency-Key": key}, []byte(body)); a.status != want {
			t.Fatalf("%s: %d %s", key, a.status, a.body)
		}
	}
	report("r1", `{"work_key":"a","task":"t","source":"tiler","error":"x"}`, 201)
	report("r1", `{"work_key":"a","task":"t","source":"tiler","error":"x"}`, 200)
	report("r2", `{"work_key":"a","task":"t","source":"tiler","error":"x"}`, 200)
	report("r1", `{"work_key":"b","task":"t","source":"tiler","error":"x"}`, 409)
	report("r3", `{"work_key":"b","source":"tiler","error":"x"}`, 422)
	report("r4", `{"work_key":"b","source":"tiler","error":"x`, 400)
	s.wantLedger("reports", "tiler", map[string]float64{"reports": 2, "reports_repeated": 1})
	s.eventually("the refusals to be written", func() bool {
		refused := s.ledger("tiler")["refused"].(map[string]any)
		return refused["409"] == 1.0 && refused["422"] == 1.0
	})
}

// TestADeletedEventIsMissed: what a hand deletes is found, and only that.
func TestADeletedEventIsMissed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i := range 3 {
		s.do("POST", "/v1/events", from(fmt.Sprint("source-", i), "k"), []byte(goodFeature))
		s.settle(fmt.Sprintf("source-%d:k", i))
	}
	s.exec("delete from events where work_key = 'source-1:k'")
	out, err := s.command("ledger", "-check")
	if err == nil || !strings.Contains(out, "source-1") || strings.Contains(out, "source-0") {
		t.Errorf("check: %v\n%s", err, out)
	}
	a := s.get("/v1/ledger").json(t)
	if mismatches := a["mismatches"].([]any); len(mismatches) != 2 {
		t.Errorf("mismatches: %v", mismatches)
	}
	for _, day := range a["days"].([]any) {
		day := day.(map[string]any)
		if day["adds_up"] != (day["source"] != "source-1") {
			t.Errorf("%v", day)
		}
	}
	if a["totals"].(map[string]any)["adds_up"] != false {
		t.Errorf("totals: %v", a["totals"])
	}
}

// refused is how often a status is in the ledger of a source.
func (s *server) refused(source string, status int) int {
	s.t.Helper()
	return s.count("select coalesce(sum(n), 0) from ledger_refusals where source = $1 and status = $2", source, status)
}

func TestRefusalsWaitForTheDatabaseAndAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	cable := newCable(t, direct)
	s := startCommand(t, "web", cable.url, map[string]string{"GEODLQ_SPOOL_MAX": "0"})
	db, err := store.Connect(context.Background(), direct, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s.db.Close()
	s.db = db
	refuse := func(source, key string, want int) {
		t.Helper()
		if a := s.do("POST", "/v1/events", from(source, key), []byte(goodFeature)); a.status != want {
			t.Fatalf("%d %s, want %d", a.status, a.body, want)
		}
	}
	cable.cut()
	refuse("fleet", "k", 503)
	refuse("fleet", "a#b", 400)
	refuse("no:source", "k", 400)
	time.Sleep(2 * refusalsSoon)
	if n := s.count("select count(*) from ledger_refusals"); n != 0 {
		t.Fatalf("%d refusals were written without a database", n)
	}
	cable.mend()
	s.eventually("the refusals to be written", func() bool {
		return s.refused("fleet", 503) == 1 && s.refused("fleet", 400) == 1 && s.refused("default", 400) == 1
	})
	refuse("fleet", "c#d", 400)
	s.stop()
	if n := s.refused("fleet", 400); n != 2 {
		t.Errorf("%d refusals are in the ledger after the end, want 2", n)
	}
}

// refusalsSoon is about when refusals are written.
const refusalsSoon = time.Second

func TestTheLedgersCommandAndFileSayTheSame(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	if out, err := s.command("ledger"); err != nil || !strings.Contains(out, "nothing was received") {
		t.Errorf("%v: %s", err, out)
	}
	s.do("POST", "/v1/events", from("fleet", "k"), []byte(goodFeature))
	s.settle("fleet:k")
	s.do("POST", "/v1/events", from("fleet", "k"), []byte(badFeature))
	s.eventually("the refusal to be written", func() bool { return s.refused("fleet", 409) == 1 })
	out, err := s.command("ledger", "-source", "fleet")
	if err != nil || !strings.Contains(out, "409:1") || !strings.Contains(out, "fleet") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := s.command("ledger", "-since", "yesterday"); err == nil {
		t.Error("yesterday is taken for a day")
	}
	want := "day,source,received,processed,dead,in_flight,duplicates,spooled,reports,reports_repeated,refused_409,adds_up\r\n" +
		dlq.Today(time.Now()).Format(time.DateOnly) + ",fleet,1,1,0,0,0,0,0,0,1,true\r\n"
	if a := s.get("/ledger.csv"); string(a.body) != want {
		t.Errorf("%q, want %q", a.body, want)
	}
}

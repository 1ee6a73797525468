package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// riverAPI is River's own client on the server's database, as an operator's tool
// would use it.
func (s *server) riverAPI() *river.Client[pgx.Tx] {
	s.t.Helper()
	client, err := river.NewClient(riverpgxv5.New(s.db), &river.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// webOnly takes events whose jobs nobody works.
func webOnly(t *testing.T, url string) *server { return startCommand(t, "web", url, nil) }

func (s *server) jobOf(key string) int64 {
	s.t.Helper()
	var id int64
	if err := s.db.QueryRow(context.Background(), "select job_id from events where work_key = $1", key).Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// wantOneLostLetter checks the one letter of which only the job is known.
func (s *server) wantOneLostLetter(key string) map[string]any {
	s.t.Helper()
	event := s.settle(key)
	if event["state"] != "dead" {
		s.t.Fatalf("%v", event)
	}
	p := properties(s.letter(event["letter_id"]))
	if p["stage"] != "downstream" || p["class"] != "unknown" || p["context_lost"] != true || p["attempts"] != 1.0 {
		s.t.Errorf("%v", p)
	}
	if n := s.count("select count(*) from dead_letters where work_key = $1", key); n != 1 {
		s.t.Errorf("%d letters", n)
	}
	return p
}

func TestAJobThatRiverEndsMakesOneLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	url := s.env["DATABASE_URL"]
	s = webOnly(t, url)
	api := s.riverAPI()
	ctx := t.Context()
	for _, key := range []string{"cancelled", "deleted", "discarded"} {
		s.post(key, berlin)
	}
	if _, err := api.JobCancel(ctx, s.jobOf("cancelled")); err != nil {
		t.Fatal(err)
	}
	s.wantOneLostLetter("cancelled")
	if _, err := api.JobDelete(ctx, s.jobOf("deleted")); err != nil {
		t.Fatal(err)
	}
	s.wantOneLostLetter("deleted")
	s.exec("update river_job set state = 'discarded', finalized_at = now() where id = $1", s.jobOf("discarded"))
	s.wantOneLostLetter("discarded")
	// Deleting a job that ended makes no second one.
	if _, err := api.JobDelete(ctx, s.jobOf("cancelled")); err != nil {
		t.Fatal(err)
	}
	if n := s.count("select count(*) from dead_letters"); n != 3 {
		t.Errorf("%d letters, want 3", n)
	}
	// Jobs of other kinds are none of ours.
	s.exec(`insert into river_job (kind, args, max_attempts, state, finalized_at) values ('other', '{"event_id": 1}', 1, 'discarded', now())`)
	if n := s.count("select count(*) from dead_letters"); n != 3 {
		t.Errorf("a job of another kind made a letter")
	}
}

func TestAJobRetriedByHandInRiverCountsAsARedrive(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	sink.status(422)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.post("k", berlin)
	id := s.settle("k")["letter_id"]
	api := s.riverAPI()
	if _, err := api.JobRetry(t.Context(), s.jobOf("k")); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second death", func() bool { return properties(s.letter(id))["attempts"] == 2.0 })
	if p := properties(s.letter(id)); p["redrives"] != 1.0 || p["status"] != "pending" {
		t.Errorf("%v", p)
	}
	sink.status(200)
	if _, err := api.JobRetry(t.Context(), s.jobOf("k")); err != nil {
		t.Fatal(err)
	}
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	if got := s.settle("k"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	// Of a quarantined letter it is refused.
	sink.status(422)
	s.post("q", berlin)
	id = s.settle("q")["letter_id"]
	s.act(id, "quarantine")
	asked, _ := sink.taken()
	if _, err := api.JobRetry(t.Context(), s.jobOf("q")); err != nil {
		t.Fatal(err)
	}
	s.eventually("the job to end", func() bool {
		return s.count("select count(*) from river_job where id = $1 and state = 'cancelled'", s.jobOf("q")) == 1
	})
	if again, _ := sink.taken(); len(again) != len(asked) || s.statusOf(id) != "quarantined" {
		t.Errorf("a quarantined letter's event ran")
	}
}

func TestArgumentsThatCannotBeReadEndInOneLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	s = webOnly(t, s.env["DATABASE_URL"])
	s.post("k", berlin)
	s.exec(`update river_job set args = '{"event_id": "x"}' where id = $1`, s.jobOf("k"))
	s = startCommand(t, "serve", s.env["DATABASE_URL"], nil)
	s.wantOneLostLetter("k")
}

func TestAJobOfAKindThatNobodyKnowsEndsInOneLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	s = webOnly(t, s.env["DATABASE_URL"])
	s.post("k", berlin)
	s.exec(`update river_job set kind = 'proces_event' where id = $1`, s.jobOf("k"))
	s = startCommand(t, "serve", s.env["DATABASE_URL"], nil)
	s.wantOneLostLetter("k")
}

func TestACaptureThatFailsIsMadeUpForByTheSweeper(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	// Make the write of one letter fail, and let healthy neighbours go by.
	s.exec(`create function poison() returns trigger language plpgsql as $$ begin
		if new.work_key = 'poison' then raise exception 'no'; end if; return new; end $$`)
	s.exec("create trigger poison before insert on dead_letters for each row execute function poison()")
	took := func(prefix string) time.Duration {
		began := time.Now()
		for i := range 20 {
			s.post(fmt.Sprintf("%s-%d", prefix, i), bowtie)
		}
		for i := range 20 {
			s.settle(fmt.Sprintf("%s-%d", prefix, i))
		}
		return time.Since(began)
	}
	before := took("before")
	s.post("poison", bowtie)
	// What stalls River's completer takes it ten seconds and more.
	if beside := took("beside"); beside > 2*time.Second && beside > 3*before {
		t.Errorf("healthy neighbours took %s, before %s", beside, before)
	}
	if got := s.get("/v1/events/poison").json(t); got["state"] != "accepted" || got["letter_id"] != nil {
		t.Errorf("%v", got)
	}
	// The sweeper makes up for others meanwhile.
	s.post("missed", bowtie)
	s.settle("missed")
	s.exec(`do $$ begin
		set local session_replication_role = replica;
		delete from dead_letters where work_key = 'missed';
		update events set state = 'accepted', finished_at = null, received_at = received_at - interval '1 minute' where work_key = 'missed';
	end $$`)
	s.exec("update events set received_at = received_at - interval '1 minute' where work_key = 'poison'")
	s.exec("update river_job set finalized_at = finalized_at - interval '1 minute' where state = 'cancelled'")
	s.eventually("the sweeper to make up for what was missed", func() bool {
		return s.count("select count(*) from dead_letters where work_key = 'missed'") == 1
	})
	if got := s.get("/v1/events/poison").json(t); got["state"] != "accepted" {
		t.Errorf("%v", got)
	}
	s.exec("drop trigger poison on dead_letters")
	p := properties(s.letter(s.settle("poison")["letter_id"]))
	if p["stage"] != "validate" || p["context_lost"] != false {
		t.Errorf("the sweeper lost the context: %v", p)
	}
	time.Sleep(100 * time.Millisecond)
	if n := s.count("select count(*) from dead_letters where work_key = 'poison'"); n != 1 {
		t.Errorf("%d letters", n)
	}
}

func TestAnEventIsProcessedOrDeadNeverBoth(t *testing.T) {
	t.Parallel()
	// The sink is slow; meanwhile the job is ended behind the worker's back.
	s := startServer(t, nil)
	s.exec(`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return new; end $$`)
	s.exec("create trigger slow before insert on features for each row execute function slow()")
	s.post("fence", berlin)
	s.eventually("the job to run", func() bool {
		return s.count("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") > 0
	})
	s.exec("update river_job set state = 'discarded', finalized_at = now() where id = $1", s.jobOf("fence"))
	event := s.settle("fence")
	time.Sleep(1500 * time.Millisecond)
	features := s.count("select count(*) from features")
	letters := s.count("select count(*) from dead_letters")
	if features+letters != 1 || s.settle("fence")["state"] != event["state"] {
		t.Errorf("%v: %d features, %d letters", event, features, letters)
	}
}

func TestStartUpRefusesWithoutTheTriggersAndMigratePutsThemBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	url := s.env["DATABASE_URL"]
	s.exec("drop trigger geodlq_capture_update on river_job")
	s.stop()
	getenv := func(name string) string {
		return map[string]string{"DATABASE_URL": url, "GEODLQ_ADDR": "127.0.0.1:0"}[name]
	}
	log := &syncBuffer{}
	err := run(t.Context(), []string{"serve"}, getenv, log, log)
	if err == nil || !strings.Contains(err.Error(), "geodlq_capture_update") || !strings.Contains(err.Error(), "geodlq migrate") {
		t.Fatalf("serve: %v", err)
	}
	if err := run(t.Context(), []string{"migrate"}, getenv, log, log); err != nil {
		t.Fatal(err)
	}
	s = startCommand(t, "serve", url, nil)
	s.post("k", bowtie)
	if got := s.settle("k"); got["state"] != "dead" {
		t.Errorf("%v", got)
	}
}

func TestAShutdownHandsBackWhatRunsAndCostsNoTry(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	hang := make(chan struct{})
	sink.answers(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_SINK_TIMEOUT": "60s", "GEODLQ_MAX_ATTEMPTS": "1"})
	s.post("k", berlin)
	s.eventually("the sink to be asked", func() bool { keys, _ := sink.taken(); return len(keys) == 1 })
	s.stop()
	close(hang)
	s = startCommand(t, "serve", s.env["DATABASE_URL"], s.env)
	if got := s.settle("k"); got["state"] != "processed" || got["tries"] != 1.0 {
		t.Errorf("%v", got)
	}
	if n := s.count("select count(*) from dead_letters"); n != 0 {
		t.Error("a shutdown made a letter")
	}
}

func TestTheFenceHoldsOnBothSides(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	hang := make(chan struct{})
	sink.answers(func(http.ResponseWriter, *http.Request) { <-hang })
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_SINK_TIMEOUT": "30s"})
	end := func(key string) {
		s.exec("update river_job set state = 'discarded', finalized_at = now() where id = $1", s.jobOf(key))
	}
	// Dead while its sink is still being asked: the answer comes too late.
	s.post("dead", berlin)
	s.eventually("the sink to be asked", func() bool { keys, _ := sink.taken(); return len(keys) == 1 })
	end("dead")
	id := s.settle("dead")["letter_id"]
	close(hang)
	// Processed, and its job ended otherwise later: no letter.
	s.post("processed", berlin)
	s.settle("processed")
	end("processed")
	time.Sleep(300 * time.Millisecond)
	if got := s.settle("dead"); got["state"] != "dead" || s.statusOf(id) != "pending" {
		t.Errorf("a dead event: %v, its letter %s", got, s.statusOf(id))
	}
	if got := s.settle("processed"); got["state"] != "processed" || got["letter_id"] != nil {
		t.Errorf("a processed event: %v", got)
	}
	if n := s.count("select count(*) from dead_letters"); n != 1 {
		t.Errorf("%d letters", n)
	}
}

// TestAZigzagKeepsNoOtherWaiting sends what takes the square of its points to thin out:
// as an event among small ones that fail, and as a report.
func TestAZigzagKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	const n = 60_000
	var ring strings.Builder
	for i := range n {
		y := 80 - 60*float64(i)/n
		if i%2 == 0 {
			y = -y
		}
		fmt.Fprintf(&ring, "[%.3f,%.4f],", float64(i)*170/n, y)
	}
	s.post("zigzag", `{"type":"Polygon","coordinates":[[`+ring.String()+`[0.000,-80.0000]]]}`)
	for i := range 20 {
		s.post(fmt.Sprintf("small-%d", i), bowtie)
	}
	began := time.Now()
	for i := range 20 {
		s.settle(fmt.Sprintf("small-%d", i))
	}
	s.settle("zigzag")
	if took := time.Since(began); took > 20*time.Second { // it was minutes
		t.Errorf("it took %v", took)
	}
	line := json.RawMessage(`{"type":"LineString","coordinates":[` + strings.TrimSuffix(ring.String(), ",") + `]}`)
	a := s.postJSON("/v1/dead-letters", map[string]any{"work_key": "line", "task": "t", "error": "e", "geometry": line})
	if a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

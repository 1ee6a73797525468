package main

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"geodlq/internal/pgtest"
)

// killed are settings under which a killed worker's jobs are soon taken up again.
var killed = map[string]string{"GEODLQ_RESCUE_AFTER": "2s", "GEODLQ_SINK_TIMEOUT": "20s"}

// hangingSink answers by status once release is closed; until then it hangs.
func hangingSink(t *testing.T) (sink *testSink, release chan struct{}, status *atomic.Int32) {
	sink = newTestSink(t)
	release, status = make(chan struct{}), &atomic.Int32{}
	status.Store(200)
	sink.answers(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		w.WriteHeader(int(status.Load()))
	})
	return sink, release, status
}

func TestAKilledWorkerCostsNoTryAndMakesNoLetter(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]string{"on the last try": "1", "before the last": "3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink, release, _ := hangingSink(t)
			s := newServer(t, pgtest.URL(t), map[string]string{"GEODLQ_SINK_URL": sink.URL})
			maps.Copy(s.env, killed)
			s.env["GEODLQ_MAX_ATTEMPTS"] = attempts
			s.startWeb(nil)
			s.post("k", berlin)
			for kills := 1; kills <= 2; kills++ {
				worker := s.startProcess("work", nil)
				s.eventually("the sink to be asked", func() bool { keys, _ := sink.taken(); return len(keys) == kills })
				kill(worker)
			}
			close(release)
			s.startProcess("work", nil)
			if got := s.settle("k"); got["state"] != "processed" || got["tries"] != 1.0 || got["attempts"] != 0.0 {
				t.Errorf("%v", got)
			}
			if n := s.count("select count(*) from dead_letters"); n != 0 {
				t.Errorf("%d letters", n)
			}
		})
	}
}

func TestAWorkerKilledAfterACancelRequestMakesOneLetter(t *testing.T) {
	t.Parallel()
	sink, release, _ := hangingSink(t)
	s := newServer(t, pgtest.URL(t), map[string]string{"GEODLQ_SINK_URL": sink.URL})
	maps.Copy(s.env, killed)
	s.startWeb(nil)
	s.post("k", berlin)
	worker := s.startProcess("work", nil)
	s.eventually("the sink to be asked", func() bool { keys, _ := sink.taken(); return len(keys) == 1 })
	_ = worker.Process.Signal(syscall.SIGSTOP) // it does not hear of the request
	if _, err := s.riverAPI().JobCancel(t.Context(), s.jobOf("k")); err != nil {
		t.Fatal(err)
	}
	kill(worker)
	close(release)
	if n := s.count("select count(*) from river_job where state = 'running' and metadata ? 'cancel_attempted_at'"); n != 1 {
		t.Fatalf("%d jobs were asked to end, so this proves nothing", n)
	}
	s.startProcess("work", nil)
	s.wantOneLostLetter("k")
	if n := s.count("select count(*) from features"); n != 0 {
		t.Error("it ran again")
	}
}

func TestAWorkerKilledAfterItsSinkCommittedLeavesItProcessed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	s = startCommand(t, "web", s.env["DATABASE_URL"], nil)
	// The completion of the job is held up, so that the kill falls between the sink's
	// commit and River's report.
	s.exec(`create function hold() returns trigger language plpgsql as $$ begin
		if new.state = 'completed' and new.kind = 'process_event' and exists (select from holding) then perform pg_sleep(30); end if; return new; end $$`)
	s.exec("create table holding ()")
	s.exec("alter table holding add column x int")
	s.exec("insert into holding values (1)")
	s.exec("create trigger hold before update on river_job for each row execute function hold()")
	worker := s.startProcess("work", killed)
	s.post("k", berlin)
	s.eventually("the sink to commit", func() bool { return s.count("select count(*) from features") == 1 })
	s.eventually("the report to be under way", func() bool {
		return s.count("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") > 0
	})
	_ = worker.Process.Kill()
	_ = worker.Wait()
	s.exec("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()")
	s.exec("delete from holding")
	if n := s.count("select count(*) from river_job where kind = 'process_event' and state = 'running'"); n != 1 {
		t.Fatalf("%d jobs are running, so this proves nothing", n)
	}
	s.startProcess("work", killed)
	s.eventually("the job to be reported", func() bool {
		return s.count("select count(*) from river_job where kind = 'process_event' and state = 'completed'") == 1
	})
	if got := s.settle("k"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	if s.count("select count(*) from features") != 1 || s.count("select count(*) from dead_letters") != 0 {
		t.Error("it was processed twice, or made a letter")
	}
}

func TestALostContextIsFoundAgainInTheBytes(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	url := s.env["DATABASE_URL"]
	s = startCommand(t, "web", url, nil)
	s.post("bad", bowtie)
	s.post("good", berlin)
	for _, key := range []string{"bad", "good"} {
		if _, err := s.riverAPI().JobCancel(t.Context(), s.jobOf(key)); err != nil {
			t.Fatal(err)
		}
	}
	lost := s.wantOneLostLetter("bad")
	if lost["located_by"] != "none" {
		t.Errorf("%v", lost)
	}
	s = startCommand(t, "serve", url, nil)
	bad, good := s.settle("bad")["letter_id"], s.settle("good")["letter_id"]
	s.eventually("the letters to be examined", func() bool {
		return s.count("select count(*) from dead_letters where context_sought") == 2
	})
	if p := properties(s.letter(bad)); p["stage"] != "validate" || p["class"] != "invalid_geometry" || p["context_lost"] != false || p["located_by"] != "geometry" || p["invalid_at"] == nil {
		t.Errorf("%v", p)
	}
	if p := properties(s.letter(good)); p["stage"] != "downstream" || p["context_lost"] != true || p["located_by"] != "geometry" {
		t.Errorf("%v", p)
	}
	if n := s.count("select count(*) from features"); n != 0 {
		t.Error("an examination wrote to the sink")
	}
}

func TestAJobThatRunsIntoItsTimeoutIsATry(t *testing.T) {
	t.Parallel()
	sink, release, _ := hangingSink(t)
	defer close(release)
	s := startServer(t, map[string]string{
		"GEODLQ_SINK_URL": sink.URL, "GEODLQ_SINK_TIMEOUT": "60s", "GEODLQ_RESCUE_AFTER": "2s", "GEODLQ_MAX_ATTEMPTS": "2",
	})
	began := time.Now()
	s.post("k", berlin)
	p := properties(s.letter(s.settle("k")["letter_id"]))
	if p["class"] != "upstream_timeout" || p["tries"] != 2.0 || p["outcome_unknown"] != true || time.Since(began) < 3*time.Second {
		t.Errorf("after %s: %v", time.Since(began), p)
	}
}

func TestABodyThatKillsItsProcessIsOneLetterAndTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	s = startCommand(t, "web", s.env["DATABASE_URL"], map[string]string{"GEODLQ_BODY_MAX": "32MiB", "GEODLQ_IN_FLIGHT_MAX": "128MiB"})
	for i := range 200 {
		s.post(fmt.Sprintf("healthy-%03d", i), berlin)
	}
	positions := strings.TrimSuffix(strings.Repeat("[1.5,2.5],", 1_990_000), ",")
	if a := s.post("killer", `{"type":"MultiPoint","coordinates":[`+positions+`]}`); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// As it stands after its worker has vanished twice. One neighbour was there too.
	for _, key := range []string{"killer", "healthy-007"} {
		s.exec(`update river_job set attempt = 2, errors = array_fill(
			'{"at": "2026-01-01T00:00:00Z", "attempt": 1, "error": "Stuck job rescued by JobRescuer", "trace": ""}'::jsonb, array[2]) where id = $1`, s.jobOf(key))
	}
	worker := s.startProcess("work", map[string]string{
		memoryVariable: "140000000", "GEODLQ_SINK_TIMEOUT": "30s", "GEODLQ_WORKERS": "4", "GOMEMLIMIT": "off", "MALLOC_ARENA_MAX": "1", "GOGC": "400",
	})
	event := s.settle("killer")
	if event["state"] != "dead" {
		t.Fatalf("%v", event)
	}
	p := properties(s.letter(event["letter_id"]))
	if p["class"] != "oom" || p["exit_code"] == nil || !strings.Contains(p["error"].(string), "MB of memory") {
		t.Errorf("%v", p)
	}
	for i := range 200 {
		if got := s.settle(fmt.Sprintf("healthy-%03d", i)); got["state"] != "processed" {
			t.Errorf("%v", got)
		}
	}
	if n := s.count("select count(*) from dead_letters"); n != 1 {
		t.Errorf("%d letters", n)
	}
	if err := worker.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the worker is gone: %v", err)
	}
}

func TestARunAloneChecksTheBytesToo(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	s = startCommand(t, "web", s.env["DATABASE_URL"], nil)
	s.post("k", berlin)
	s.exec("update events set body = convert_to(replace(convert_from(body, 'UTF8'), '13.4', '14.4'), 'UTF8')")
	s.exec(`update river_job set attempt = 2, errors = array_fill(
		'{"at": "2026-01-01T00:00:00Z", "attempt": 1, "error": "Stuck job rescued by JobRescuer", "trace": ""}'::jsonb, array[2]) where id = $1`, s.jobOf("k"))
	s.startProcess("work", nil)
	event := s.settle("k")
	if event["state"] != "dead" {
		t.Fatalf("%v", event)
	}
	if p := properties(s.letter(event["letter_id"])); p["stage"] != "envelope" || !strings.Contains(p["error"].(string), "SHA-256") {
		t.Errorf("%v", p)
	}
}

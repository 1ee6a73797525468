package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"geodlq/internal/pgtest"
)

// sender sends events for as long as it is let, each under a key of its own, and
// remembers which were accepted.
type sender struct {
	s        *server
	prefix   string
	stop     chan struct{}
	sending  sync.WaitGroup
	mu       sync.Mutex
	accepted map[string]bool // key to whether it was spooled
	refused  map[int]int     // by status
}

func (s *server) startSending(prefix string, senders int, body func(n int) string) *sender {
	d := &sender{s: s, prefix: prefix, stop: make(chan struct{}), accepted: map[string]bool{}, refused: map[int]int{}}
	var serial atomic.Int64
	for range senders {
		d.sending.Go(func() {
			for {
				select {
				case <-d.stop:
					return
				case <-time.After(10 * time.Millisecond): // what is taken has to be worked too
				}
				n := int(serial.Add(1))
				d.send(fmt.Sprintf("%s-%05d", prefix, n), body(n))
			}
		})
	}
	return d
}

func (d *sender) send(key, body string) {
	request, _ := http.NewRequest("POST", d.s.url+"/v1/events", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/geo+json")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return // it was killed: nothing was promised
	}
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	if response.StatusCode == http.StatusAccepted && err == nil {
		d.accepted[key] = strings.Contains(text.String(), `"spooled":true`)
	} else {
		d.refused[response.StatusCode]++
	}
}

// count is how many were accepted, and how many of them spooled.
func (d *sender) count() (accepted, spooled int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, was := range d.accepted {
		if was {
			spooled++
		}
	}
	return len(d.accepted), spooled
}

// end stops sending, and checks that all that was accepted came to one end.
func (d *sender) end() {
	d.s.t.Helper()
	select {
	case <-d.stop:
	default:
		close(d.stop)
	}
	d.sending.Wait()
	keys := make([]string, 0, len(d.accepted))
	for key := range d.accepted {
		keys = append(keys, key)
	}
	d.s.eventually("all that was accepted to end", func() bool {
		return d.s.count("select count(*) from events where work_key = any($1) and state in ('processed', 'dead')", keys) == len(keys)
	})
	dead := d.s.count("select count(*) from events where work_key like $1 || '-%' and state = 'dead'", d.prefix)
	letters := d.s.count("select count(*) from dead_letters where work_key like $1 || '-%'", d.prefix)
	if dead != letters {
		d.s.t.Errorf("%d are dead, with %d letters", dead, letters)
	}
}

// goodAndBad is an event of a point, or every third one that crosses itself.
func goodAndBad(n int) string {
	if n%3 == 0 {
		return bowtie
	}
	return berlin
}

func TestEventsAreTakenWhilePostgreSQLIsStopped(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	// A fetch whose answer was lost with the connection leaves its jobs running for no
	// one: they end when they are rescued, which is to be within the time of a test.
	s := startCommand(t, "serve", pg.cluster.URL(), map[string]string{"GEODLQ_RESCUE_AFTER": "10s"})
	d := s.startSending("load", 8, goodAndBad)
	s.eventually("some to be accepted", func() bool { n, _ := d.count(); return n > 200 })
	for _, how := range []syscall.Signal{immediate, fast} {
		_, before := d.count()
		pg.stop(how)
		s.eventually("some to be spooled", func() bool { _, spooled := d.count(); return spooled > before+300 })
		if a := s.post("while-away", berlin); a.status != 202 || a.json(t)["job_id"] != nil {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.get("/v1/events/while-away"); a.status != 200 || a.json(t)["state"] != "accepted" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.get("/v1/events/never-sent"); a.status != 503 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.get("/readyz"); a.status != 200 || a.json(t)["status"] != "spooling" {
			t.Errorf("%d %s", a.status, a.body)
		}
		page := s.do("GET", "/", map[string]string{"Accept": "text/html"}, nil)
		for _, want := range []string{"The database can&#39;t be reached since", "Events and reports are still taken", "on this server’s disk"} {
			if page.status != 503 || !strings.Contains(string(page.body), want) {
				t.Errorf("%d, without %q", page.status, want)
			}
		}
		pg.start()
		s.eventually("the door to notice", func() bool { return s.get("/readyz").json(t)["status"] == "ready" })
	}
	d.end()
	if n, spooled := d.count(); len(d.refused) > 0 || spooled < 600 {
		t.Errorf("%d accepted, %d spooled, refused: %v", n, spooled, d.refused)
	}
	if got := s.settle("while-away"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
}

func TestADatabaseThatHangsIsFoundOutThoughNoEventComes(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	s := startCommand(t, "serve", pg.cluster.URL(), nil)
	s.post("bad", bowtie)
	letter := fmt.Sprintf("/letters/%.0f", s.settle("bad")["letter_id"])
	html := map[string]string{"Accept": "text/html"}
	s.do("GET", "/", html, nil) // its connections stand
	hang, server := time.Now(), pg.pid()
	signalServer(server, syscall.SIGSTOP)
	defer time.AfterFunc(30*time.Second, func() { signalServer(server, syscall.SIGCONT) }).Stop()
	defer signalServer(server, syscall.SIGCONT)
	var readers sync.WaitGroup
	for _, path := range []string{"/", letter, "/v1/dead-letters?since=1h", "/tiles/0/0/0.mvt", "/redrives"} {
		readers.Go(func() {
			if a := s.do("GET", path, html, nil); a.status != 503 {
				t.Errorf("%s: %d", path, a.status)
			}
		})
	}
	readers.Wait()
	if took := time.Since(hang); took > 15*time.Second { // 10 s, and what a busy machine adds
		t.Errorf("readers waited for %v", took)
	}
	again := time.Now()
	page := s.do("GET", "/", html, nil)
	if page.status != 503 || !strings.Contains(string(page.body), "The database does not answer since") || time.Since(again) > 5*time.Second {
		t.Errorf("%d after %v", page.status, time.Since(again))
	}
	signalServer(server, syscall.SIGCONT)
	s.eventually("the page to be back", func() bool {
		page := s.do("GET", "/", html, nil)
		return page.status == 200 && !strings.Contains(string(page.body), "The database")
	})
}

// startBehindCable runs a command whose way to the database can be cut; the test's own
// can't.
func startBehindCable(t *testing.T, command string) (*server, *cable) {
	t.Helper()
	url := pgtest.URL(t)
	cable := newCable(t, url)
	s := startCommand(t, command, cable.url, nil)
	s.connect(url)
	return s, cable
}

func TestReportsThatWereSpooledCountOnce(t *testing.T) {
	t.Parallel()
	s, cable := startBehindCable(t, "serve")
	s.report(map[string]any{"work_key": "w"}, "before")
	cable.cut()
	body := map[string]any{"work_key": "w", "geometry": "POINT (13.4 52.5)", "payload": map[string]any{"n": 1}}
	duplicate := false
	for _, key := range []string{"first", "first", "before", ""} {
		a := s.report(body, key)
		if got := a.json(t); a.status != 202 || got["spooled"] != true || got["letter_id"] != nil || got["duplicate"] != duplicate {
			t.Errorf("%s: %d %s", key, a.status, a.body)
		}
		duplicate = key == "first" && !duplicate // the second of that name
	}
	cable.mend()
	// before, first and the one without a key: the letter's first failure and two more.
	s.eventually("the reports to be counted", func() bool {
		return s.count("select coalesce(max(attempts), 0) from dead_letters") == 3 && s.get("/readyz").json(t)["status"] == "ready"
	})
	if n := s.count("select count(*) from dead_letters where located_by = 'geometry'"); n != 1 {
		t.Error("a spooled report lost its place")
	}
	s.exec("vacuum") // any time for more to come
	if n := s.count("select attempts from dead_letters"); n != 3 {
		t.Errorf("%d attempts", n)
	}
}

func TestASpooledReportUnderAnothersKeyIsCountedAllTheSame(t *testing.T) {
	t.Parallel()
	s, cable := startBehindCable(t, "serve")
	s.report(map[string]any{"work_key": "w1"}, "key")
	cable.cut()
	if a := s.report(map[string]any{"work_key": "w2"}, "key"); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	cable.mend()
	s.eventually("the second letter", func() bool { return s.count("select count(*) from dead_letters where work_key = 'w2'") == 1 })
}

func TestWhatCanNotBeLoadedNowIsLoadedLaterAndCountedOnce(t *testing.T) {
	t.Parallel()
	s, cable := startBehindCable(t, "serve")
	cable.cut()
	for i := range 6 {
		s.post(fmt.Sprintf("k%d", i), goodAndBad(i))
	}
	s.exec(`do $$ begin execute format('alter database %I set lock_timeout = 100', current_database()); end $$`)
	tx, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table events in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	cable.mend()
	s.eventually("a load that fails", func() bool { return strings.Contains(s.log.String(), "could not be loaded") })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		s.eventually("the event", func() bool {
			return s.count("select count(*) from events where work_key = $1", fmt.Sprintf("k%d", i)) == 1
		})
		s.settle(fmt.Sprintf("k%d", i))
	}
	s.wantLedger("loaded in the end", "default", map[string]float64{"received": 6, "processed": 4, "dead": 2})
}

func TestASpooledKeyWithAnotherBodyBecomesALetter(t *testing.T) {
	t.Parallel()
	s, cable := startBehindCable(t, "serve")
	s.post("k", berlin)
	s.settle("k")
	cable.cut()
	if a := s.post("k", bowtie); a.status != 202 || a.json(t)["spooled"] != true {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.post("k", berlin); a.status != 409 { // as the spool knows
		t.Errorf("%d %s", a.status, a.body)
	}
	cable.mend()
	s.eventually("the letter", func() bool { return s.count("select count(*) from dead_letters") == 1 })
	var key string
	if err := s.db.QueryRow(t.Context(), "select work_key from dead_letters").Scan(&key); err != nil {
		t.Fatal(err)
	}
	event := s.settle(key)
	p := properties(s.letter(event["letter_id"]))
	if !strings.HasPrefix(key, "k~") || len(key) != 2+16 || p["stage"] != "envelope" || p["status"] != "pending" || p["context_lost"] != false {
		t.Errorf("%s: %v", key, p)
	}
	if a := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", event["letter_id"])); string(a.body) != bowtie {
		t.Errorf("%s", a.body)
	}
	if got := s.settle("k"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	// Redriven, it runs as a unit of its own.
	s.act(event["letter_id"], "redrive")
	s.eventually("the redrive to end", func() bool { return properties(s.letter(event["letter_id"]))["attempts"] == 2.0 })
	if p := properties(s.letter(event["letter_id"])); p["stage"] != "validate" {
		t.Errorf("%v", p)
	}
}

func TestAReadOnlyDatabaseIsReadAndNotWritten(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("bad", bowtie)
	id := s.settle("bad")["letter_id"]
	readOnly := func(on string) {
		s.exec("do $$ begin execute format('alter database %I set default_transaction_read_only = " + on + "', current_database()); end $$")
		s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	}
	readOnly("on")
	if a := s.post("k", berlin); a.status != 202 || a.json(t)["spooled"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.eventually("the page to say so", func() bool {
		page := s.do("GET", "/", map[string]string{"Accept": "text/html"}, nil)
		return page.status == 200 && strings.Contains(string(page.body), "The database takes no writes since") && strings.Contains(string(page.body), "invalid_geometry")
	})
	if a := s.do("POST", fmt.Sprintf("/v1/dead-letters/%.0f/redrive", id), map[string]string{"Content-Type": "application/json"}, nil); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.exec("set default_transaction_read_only = off; do $$ begin execute format('alter database %I reset default_transaction_read_only', current_database()); end $$")
	s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	s.eventually("the spool to be loaded", func() bool { return s.count("select count(*) from events where work_key = 'k'") == 1 })
	s.settle("k")
}

func TestEventsAreTakenWhileTheDatabasesDiskIsFull(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", nil)
	// No file grows beyond this, those of the private PostgreSQL included: its WAL
	// segments of 16 MiB do not have to. A limit that is no multiple of its page makes a
	// short write, which PostgreSQL calls disk_full.
	full := s.startProcess("serve", map[string]string{diskVariable: strconv.Itoa(24<<20 + 4096), "GEODLQ_WORKERS": "4"})
	s.awaitWeb()
	s.connect(privateURL(t, s.env["GEODLQ_DATA"]))
	filler := `{"type":"Feature","properties":{"x":"` + strings.Repeat("filler ", 8000) + `"},"geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}}`
	d := s.startSending("full", 8, func(int) string { return filler })
	s.eventually("some to be spooled", func() bool { _, spooled := d.count(); return spooled > 50 })
	close(d.stop)
	d.sending.Wait()
	if !strings.Contains(s.log.String(), "is full") {
		t.Errorf("it was not the disk:\n%s", s.log.tail(2000))
	}
	_ = full.Process.Signal(syscall.SIGTERM)
	_ = full.Wait()
	s.startProcess("serve", nil)
	s.awaitWeb()
	d.end()
	if len(d.refused) > 0 {
		t.Errorf("refused: %v", d.refused)
	}
}

func TestWhenOurDiskIsFullTooNothingMoreIsTaken(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	cable := newCable(t, url)
	s := newServer(t, cable.url, nil)
	s.connect(url)
	cable.cut()
	s.startWeb(map[string]string{diskVariable: "100000"})
	d := s.startSending("disk", 4, func(int) string {
		return `{"type":"Point","coordinates":[1,2],"x":"` + strings.Repeat("x", 90_000) + `"}`
	})
	s.eventually("refusals", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.refused[503] > 20 })
	close(d.stop)
	d.sending.Wait()
	if n, _ := d.count(); n != 0 {
		t.Errorf("%d that do not fit were accepted", n)
	}
	// What fits is still taken, into files of less than the limit.
	small := s.startSending("small", 4, goodAndBad)
	s.eventually("more than a file of them", func() bool { _, spooled := small.count(); return spooled > 500 })
	s.startProcess("work", nil)
	cable.mend()
	small.end()
	if n := s.count("select count(*) from events where work_key like 'disk-%'"); n != 0 {
		t.Errorf("%d were refused, and are there", n)
	}
}

func TestASpoolIsWholeAfterKillsInTheMiddleOfWrites(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	cable := newCable(t, url)
	s := newServer(t, cable.url, nil)
	s.connect(url)
	cable.cut()
	var all []*sender
	for round := range 4 {
		web := s.startWeb(nil) // it starts without the database
		d := s.startSending(fmt.Sprintf("kill%d", round), 16, goodAndBad)
		s.eventually("some to be spooled", func() bool { _, spooled := d.count(); return spooled > 100 })
		kill(web)
		close(d.stop)
		d.sending.Wait()
		all = append(all, d)
	}
	cable.mend()
	s.startProcess("work", nil)
	s.startWeb(nil)
	for _, d := range all {
		d.end()
	}
}

func TestTheSpoolsCommands(t *testing.T) {
	t.Parallel()
	s, cable := startBehindCable(t, "web")
	cable.cut()
	s.post("k1", berlin)
	s.report(map[string]any{"work_key": "w"}, "")
	getenv := func(name string) string { return s.env[name] }
	status := func() string {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"spool", "status"}, getenv, &out, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if text := status(); !strings.Contains(text, "runs") || !strings.Contains(text, "  1       1  ") {
		t.Errorf("%s", text)
	}
	s.stop()
	if text := status(); !strings.Contains(text, "gone") {
		t.Errorf("%s", text)
	}
	cable.mend()
	var out, log bytes.Buffer
	if err := run(t.Context(), []string{"spool", "load"}, getenv, &out, &log); err != nil || !strings.Contains(out.String(), "2 events and reports were loaded") {
		t.Errorf("%v %s %s", err, out.String(), log.String())
	}
	if text := status(); !strings.Contains(text, "is empty") {
		t.Errorf("%s", text)
	}
	if s.count("select count(*) from events") != 1 || s.count("select count(*) from dead_letters") != 1 {
		t.Error("they are not in the database")
	}
	for _, wrong := range [][]string{{"spool"}, {"spool", "empty"}, {"spool", "status", "more"}} {
		if err := run(t.Context(), wrong, getenv, &out, &out); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

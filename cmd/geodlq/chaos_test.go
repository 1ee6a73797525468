package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geodlq/internal/store"
)

// chaosVariable is for how long the chaos goes on; empty: the short form.
const chaosVariable = "GEODLQ_CHAOS"

// ordeal is what a run of the chaos has to go through at least.
type ordeal struct {
	fenced    bool
	units     int // sent
	kills     int // of workers, with many jobs under way
	immediate int // restarts of PostgreSQL, after which it recovers
	fast      int
	until     time.Time
}

// minRunning is how many of its jobs must be under way when a victim is killed, and
// inTheGap the part of them that must be between the sink's commit and River's report.
const (
	minRunning = 50
	inTheGap   = 10 // a tenth
)

// TestChaos kills workers, web processes and PostgreSQL under load, and then counts:
// whatever was acknowledged came to one end, and was written to the sink once.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	o := ordeal{fenced: true, units: 20_000, kills: 20, immediate: 2, fast: 1}
	if text := os.Getenv(chaosVariable); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		o.until = time.Now().Add(length)
	}
	c := startChaos(t, o)
	c.run()
	c.report()
	if c.lost != 0 || c.doubled != 0 || c.mismatches != 0 {
		t.Errorf("lost %d, doubled %d, the ledger is wrong in %d places", c.lost, c.doubled, c.mismatches)
	}
}

// TestChaosWithoutTheFence is the negative control: the same, with the state by which
// a worker knows that a unit is at its end taken away, writes units twice.
func TestChaosWithoutTheFence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	c := startChaos(t, ordeal{units: 4000, kills: 4})
	c.run()
	c.report()
	if c.doubled == 0 {
		t.Error("nothing was written twice, so that TestChaos proves nothing")
	}
}

// chaos is one run.
type chaos struct {
	*server
	ordeal
	pg   *postgres
	webs [2]*server // each at its own address
	web  [2]*exec.Cmd
	work [3]*exec.Cmd

	sent    atomic.Int64 // units
	serial  atomic.Int64
	stop    chan struct{}
	sending sync.WaitGroup
	mu      sync.Mutex
	acked   map[string]int // work key to how many units it stands for
	reports map[string]bool

	killed, killedWebs, restarts int
	few                          int // workers that were killed with fewer jobs than must be
	running, gap                 int // jobs at the kills
	serials                      [3]int
	lost, doubled, mismatches    int
	ledger                       string
	began                        time.Time
}

func startChaos(t *testing.T, o ordeal) *chaos {
	pg := startPostgres(t)
	env := map[string]string{
		"GEODLQ_WORKERS": "150", "GEODLQ_RESCUE_AFTER": "10s", "GEODLQ_SINK_TIMEOUT": "20s", "GEODLQ_LOG_LEVEL": "error",
		"GEODLQ_MAX_ATTEMPTS": "6",
	}
	c := &chaos{
		ordeal: o, pg: pg, stop: make(chan struct{}), acked: map[string]int{}, reports: map[string]bool{}, began: time.Now(),
		server: newServer(t, pg.cluster.URL(), env),
	}
	for i := range c.webs {
		c.webs[i] = newServer(t, pg.cluster.URL(), env)
		c.webs[i].env["GEODLQ_DATA"] = c.env["GEODLQ_DATA"] // one spool directory for both
		c.web[i] = c.webs[i].startWeb(nil)
	}
	c.watchSink()
	for i := range c.work {
		c.startWorker(i)
	}
	return c
}

// watchSink notes every write to the sink, and, without the fence, makes an event
// forget that it was processed: its state, and that its bytes were let go.
func (c *chaos) watchSink() {
	c.exec("create table sink_writes (work_key text not null)")
	c.exec(`create function note_write() returns trigger language plpgsql as $$ begin
		insert into sink_writes values (new.work_key); return null; end $$`)
	c.exec("create trigger note_write after insert or update on features for each row execute function note_write()")
	if !c.fenced {
		c.exec(`create function forget() returns trigger language plpgsql as $$ begin return old; end $$`)
		c.exec("create trigger forget before update on events for each row when (new.state = 'processed') execute function forget()")
	}
}

func (c *chaos) run() {
	for range 6 {
		c.sending.Go(c.send)
	}
	for n := 0; !c.enough(); n++ {
		for int64(c.killed)*int64(c.units) > c.sent.Load()*int64(c.kills) {
			time.Sleep(20 * time.Millisecond) // spread over all that is sent
		}
		switch {
		case c.restarts < c.fast+c.immediate && c.killed >= (c.restarts+1)*c.kills/(c.fast+c.immediate+1):
			c.restartPostgres()
		case n%5 == 4:
			c.killWeb(n / 5 % len(c.web))
		default:
			c.killWorker(n % len(c.work))
		}
	}
	close(c.stop)
	c.sending.Wait()
	c.settleAll()
	c.count()
}

func (c *chaos) enough() bool {
	return int(c.sent.Load()) >= c.units && c.killed >= c.kills && c.restarts >= c.fast+c.immediate && time.Now().After(c.until)
}

// startWorker starts a worker whose connections can be told from others.
func (c *chaos) startWorker(i int) {
	c.t.Helper()
	c.serials[i]++
	url, err := url.Parse(c.env["DATABASE_URL"])
	if err != nil {
		c.t.Fatal(err)
	}
	query := url.Query()
	query.Set("application_name", c.application(i))
	url.RawQuery = query.Encode()
	c.work[i] = c.startProcess("work", map[string]string{"DATABASE_URL": url.String()})
}

func (c *chaos) application(i int) string { return fmt.Sprintf("worker-%d-%d", i, c.serials[i]) }

// killWorker kills a worker once enough of its jobs are under way, and starts another.
// The jobs are counted once PostgreSQL has done with what the worker had asked last: a
// report that was sent is none that is missing.
func (c *chaos) killWorker(i int) {
	c.t.Helper()
	pid := c.work[i].Process.Pid
	client := fmt.Sprintf("%%-%d-%%", pid)
	c.eventually("a worker to be busy", func() bool {
		running, gap := c.jobsOf(client)
		time.Sleep(20 * time.Millisecond)
		return running >= minRunning && gap*inTheGap >= running
	})
	kill(c.work[i])
	var running, gap int
	c.eventually("the connections of a killed worker to end", func() bool {
		time.Sleep(20 * time.Millisecond)
		was := running + gap
		running, gap = c.jobsOf(client)
		return running > 0 && running+gap == was && c.db.QueryRow(context.Background(),
			"select count(*) from pg_stat_activity where application_name = $1 and state = 'active'", c.application(i)).Scan(&was) == nil && was == 0
	})
	if running >= minRunning && gap*inTheGap >= running {
		c.killed, c.running, c.gap = c.killed+1, c.running+running, c.gap+gap
	} else {
		c.few++
	}
	c.say("SIGKILL of worker %d: %d of its jobs left running, %d of them written to the sink and not reported", pid, running, gap)
	c.startWorker(i)
}

// jobsOf counts the jobs that a client of River runs, and those of them whose event is
// at its end already.
func (c *chaos) jobsOf(client string) (running, gap int) {
	err := c.db.QueryRow(context.Background(), `select count(*), count(*) filter (where f.work_key is not null)
		from river_job j join events e on e.job_id = j.id left join features f on f.work_key = e.work_key
		where j.state = 'running' and j.kind = 'process_event' and j.attempted_by[array_upper(j.attempted_by, 1)] like $1`, client).Scan(&running, &gap)
	if err != nil {
		return 0, 0 // between two lives of PostgreSQL
	}
	return running, gap
}

func (c *chaos) killWeb(i int) {
	c.say("SIGKILL of web %d, %d units sent", c.web[i].Process.Pid, c.sent.Load())
	kill(c.web[i])
	c.killedWebs++
	c.web[i] = c.webs[i].startProcess("web", nil)
}

func (c *chaos) restartPostgres() {
	c.t.Helper()
	how, name := immediate, "immediate"
	if c.restarts == 0 && c.fast > 0 {
		how, name = fast, "fast"
	}
	c.eventually("the workers to be busy", func() bool {
		running, gap := c.jobsOf("%")
		if running < minRunning {
			return false
		}
		c.pg.stop(how)
		c.say("%s restart of PostgreSQL: %d jobs running, %d of them written to the sink and not reported", name, running, gap)
		return true
	})
	time.Sleep(time.Second) // so that something is spooled
	c.pg.start()
	c.restarts++
}

// settleAll waits until nothing is under way any more, and both webs answer.
func (c *chaos) settleAll() {
	c.t.Helper()
	c.say("sent %d units; waiting for their end", c.sent.Load())
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var left int
		err := c.db.QueryRow(context.Background(), `select count(*) from river_job
			where kind = 'process_event' and state not in ('completed', 'cancelled', 'discarded')`).Scan(&left)
		spooled, _ := filesUnder(c.env["GEODLQ_DATA"] + "/spool")
		if err == nil && left == 0 && spooled == 0 {
			c.webs[0].awaitWeb()
			return
		}
	}
	c.t.Errorf("not at an end after five minutes\n%s", c.log.tail(2000))
}

func filesUnder(dir string) (n int, err error) {
	out, err := exec.Command("find", dir, "-name", "*.ndjson").Output()
	return strings.Count(string(out), "\n"), err
}

// count compares what was acknowledged with what is there.
func (c *chaos) count() {
	keys, units := make([]string, 0, len(c.acked)), make([]int, 0, len(c.acked))
	for key, n := range c.acked {
		keys, units = append(keys, key), append(units, n)
	}
	reports := make([]string, 0, len(c.reports))
	for key := range c.reports {
		reports = append(reports, key)
	}
	// A unit is at its one end: processed and in the sink, or dead with its one letter;
	// a collection is replaced by as many units as it has features.
	const ended = `(e.state = 'processed' and f.work_key is not null and l.id is null or e.state = 'dead' and l.id is not null and f.work_key is null)`
	const outcome = `events e left join features f on f.work_key = e.work_key left join dead_letters l on l.event_id = e.id`
	c.lost = c.server.count(`with acked as materialized (select * from unnest($1::text[], $2::int[]) a (work_key, units)),
		ended as (
			select a.work_key from acked a join (`+outcome+`) on e.work_key = a.work_key where a.units = 1 and `+ended+`
			union all
			select a.work_key from acked a join events p on p.work_key = a.work_key and p.state = 'split' join (`+outcome+`) on e.parent_id = p.id
			where a.units > 1 and `+ended+`)
		select (select sum(units) from acked) - (select count(*) from ended)`, keys, units)
	c.lost += c.server.count(`select count(*) from unnest($1::text[]) r (work_key)
		where (select count(*) from dead_letters l where l.work_key = r.work_key and l.attempts = 1) <> 1`, reports)
	c.doubled = c.server.count("select count(*) - count(distinct work_key) from sink_writes")
	c.checkLedger()
}

// checkLedger holds the ledger against the tables, and its sum against itself.
func (c *chaos) checkLedger() {
	check, err := store.New(c.db, nil, store.Rules{}).CheckLedger(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	c.mismatches = int(check.Mismatched)
	text := c.webs[0].get("/v1/ledger")
	totals := text.json(c.t)["totals"].(map[string]any)
	n := func(name string) int { return int(totals[name].(float64)) }
	c.ledger = fmt.Sprintf("received %d = processed %d + dead %d + in flight %d + duplicates %d",
		n("received"), n("processed"), n("dead"), n("in_flight"), n("duplicates"))
	if n("received") != n("processed")+n("dead")+n("duplicates") || n("in_flight")+n("spooled") != 0 {
		c.mismatches++
	}
}

func (c *chaos) say(format string, args ...any) {
	fmt.Printf("  %5.1f s  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

func (c *chaos) report() {
	c.say("fence %v: %d SIGKILLs of workers (that left %d jobs running, %d of them between the sink's commit and River's report), %d more with fewer jobs, %d of webs, %d restarts of PostgreSQL, %d units sent, %d acknowledged, %d reports; lost %d, doubled %d; ledger: %s, %d mismatches",
		c.fenced, c.killed, c.running, c.gap, c.few, c.killedWebs, c.restarts, c.sent.Load(), len(c.acked), len(c.reports), c.lost, c.doubled, c.ledger, c.mismatches)
}

// maxBacklog is enough to keep the workers busy.
const maxBacklog = 1000

func (c *chaos) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// send sends whatever a producer might until it is stopped, each until it is
// acknowledged. It waits while much is left to be done.
func (c *chaos) send() {
	for {
		if c.stopped() {
			return
		}
		n := int(c.serial.Add(1))
		switch n % 10 {
		case 0:
			c.sendReport(n)
		case 1, 2, 3, 4:
			c.sendBatch(n)
		default:
			c.sendOne(n)
		}
		for !c.stopped() {
			left, err := c.backlog()
			if err != nil {
				time.Sleep(200 * time.Millisecond) // PostgreSQL is away, and what is sent is spooled
			}
			if left < maxBacklog {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// backlog is how many units wait for a worker, roughly.
func (c *chaos) backlog() (n int, err error) {
	err = c.db.QueryRow(context.Background(), "select count(*) from (select from river_job where state = 'available' limit $1) j", maxBacklog).Scan(&n)
	return n, err
}

// post sends a request to either web until it is acknowledged, and returns the
// answer.
func (c *chaos) post(path string, header map[string]string, body []byte) []byte {
	for {
		web := c.webs[rand.IntN(len(c.webs))]
		request, _ := http.NewRequest("POST", web.url+path, bytes.NewReader(body))
		for name, value := range header {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode < 300 {
				return text
			}
			if response.StatusCode < 500 && err == nil {
				c.t.Errorf("%d %s", response.StatusCode, text)
				return nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *chaos) ack(key string, units int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked[key] = units
}

// kinds are events of all kinds, with how many units each is.
var kinds = []struct {
	body, mediaType, crs string
	units                int
	gzip                 bool
}{
	{body: berlin, units: 1},
	{body: bowtie, units: 1},
	{body: `{"type":"Polygon","coordinates":[[[390000,5820000],[391000,5820000],[391000,5821000],[390000,5820000]]]}`, crs: "EPSG:25833", units: 1},
	{body: `{"type":"FeatureCollection","features":[` + berlin + `,` + berlin + `,` + bowtie + `]}`, units: 3},
	{body: `{"type":"Point","coordinates":[13.4,`, units: 1},
	{body: "POINT (13.4 52.5)", mediaType: "text/plain", units: 1},
	{body: berlin, crs: "EPSG:99999", units: 1},
	{body: berlin, gzip: true, units: 1},
	{body: `{"type":"Feature","properties":{"x":"` + strings.Repeat("large ", 20_000) + `"},"geometry":{"type":"Point","coordinates":[1,2]}}`, units: 1},
	{body: "\x00\xff", mediaType: "application/octet-stream", units: 1},
	{body: `{"type":"Polygon","coordinates":[[[170,0],[190,0],[190,10],[170,10],[170,0]]]}`, units: 1},
}

func (c *chaos) sendOne(n int) {
	kind := kinds[n%len(kinds)]
	key := fmt.Sprintf("one-%07d", n)
	header := map[string]string{"Content-Type": "application/geo+json", "Idempotency-Key": key}
	body := []byte(kind.body)
	if kind.mediaType != "" {
		header["Content-Type"] = kind.mediaType
	}
	if kind.crs != "" {
		header["Content-Crs"] = kind.crs
	}
	if kind.gzip {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(body)
		_ = w.Close()
		header["Content-Encoding"], body = "gzip", zipped.Bytes()
	}
	c.post("/v1/events", header, body)
	c.ack(key, kind.units)
	c.sent.Add(int64(kind.units))
}

func (c *chaos) sendBatch(n int) {
	const records = 40
	var body strings.Builder
	for i := range records {
		body.WriteString(goodAndBad(i) + "\n")
	}
	key := fmt.Sprintf("batch-%07d", n)
	text := c.post("/v1/events", map[string]string{"Content-Type": "application/x-ndjson", "Idempotency-Key": key}, []byte(body.String()))
	var answer struct {
		Events []struct {
			WorkKey string `json:"work_key"`
		} `json:"events"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Events) != records {
		c.t.Errorf("a batch: %v %s", err, text)
	}
	for _, e := range answer.Events {
		c.ack(e.WorkKey, 1)
	}
	c.sent.Add(records)
}

func (c *chaos) sendReport(n int) {
	key := fmt.Sprintf("report-%07d", n)
	body := fmt.Sprintf(`{"work_key":%q,"task":"tiles","error":"no","tile":{"z":7,"x":66,"y":42}}`, key)
	c.post("/v1/dead-letters", map[string]string{"Content-Type": "application/json", "Idempotency-Key": key}, []byte(body))
	c.mu.Lock()
	c.reports[key] = true
	c.mu.Unlock()
	c.sent.Add(1)
}

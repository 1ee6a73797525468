package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/localpg"
	"geodlq/internal/store"
	"geodlq/migrations"
)

// Sizes of the benchmarks of throughput.
const (
	doorConnections = 64
	doorTime        = 15 * time.Second
	queueEvents     = 100_000
	redriveLetters  = 100_000
	noopJobs        = 60_000
	sustainedRate   = 5_200 // events a second
	sustainedTime   = 2 * time.Minute
	uploadBytes     = 32 << 20
)

// startDurable is a server over a PostgreSQL of its own which syncs every commit, as
// it is in production; web and work are processes of their own, to be weighed.
func startDurable(b testing.TB, env map[string]string) *server {
	b.Helper()
	dir := b.TempDir()
	cluster, err := localpg.Start(context.Background(), localpg.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cluster.Close()
		_ = localpg.Remove(context.Background(), dir)
	})
	pool, err := store.Connect(context.Background(), cluster.URL(), 4)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Up(context.Background(), pool); err != nil {
		b.Fatal(err)
	}
	all := map[string]string{"GEODLQ_LOG_LEVEL": "warn", "GEODLQ_WORKERS": "", "GEODLQ_SINK_TIMEOUT": "", "GEODLQ_DATA": filepath.Join(dir, "data")}
	maps.Copy(all, env)
	return newServer(b, cluster.URL(), all)
}

// weighed is a process with the most memory that it took.
type weighed struct {
	t       testing.TB
	process *exec.Cmd
}

func (s *server) startWeighed(command string) *weighed {
	s.t.Helper()
	w := &weighed{s.t, s.startProcess(command, nil)}
	if command != "work" {
		s.eventually("the web to listen", func() bool {
			response, err := http.Get(s.url + "/readyz")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
	}
	return w
}

// peak is the most resident memory that the process had, in megabytes.
func (w *weighed) peak() float64 {
	w.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.process.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes float64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		w.t.Fatal(err)
	}
	return kilobytes * 1024 / 1e6
}

func (w *weighed) end() {
	_ = w.process.Process.Signal(os.Interrupt)
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// connection sends requests one after the other, with as little work of its own as
// may be: it shares the cores with what is measured.
type connection struct {
	conn net.Conn
	in   *bufio.Reader
	out  bytes.Buffer
}

func dial(url string) (*connection, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn, in: bufio.NewReader(conn)}, nil
}

// post sends a body and reads the answer, and returns its status.
func (c *connection) post(mediaType, key string, body []byte) (int, error) {
	c.out.Reset()
	fmt.Fprintf(&c.out, "POST /v1/events HTTP/1.1\r\nHost: geodlq\r\nContent-Type: %s\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n", mediaType, key, len(body))
	c.out.Write(body)
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return 0, err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil || len(status) < 12 {
		return 0, fmt.Errorf("status line %q: %w", status, err)
	}
	code, err := strconv.Atoi(string(status[9:12]))
	if err != nil {
		return 0, err
	}
	return code, c.skipAnswer()
}

func (c *connection) skipAnswer() error {
	length, chunked := 0, false
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
		chunked = chunked || bytes.EqualFold(line, []byte("Transfer-Encoding: chunked"))
	}
	if !chunked {
		_, err := c.in.Discard(length)
		return err
	}
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 64)
		if err != nil {
			return err
		}
		if _, err := c.in.Discard(int(size) + 2); err != nil || size == 0 {
			return err
		}
	}
}

// hammer posts over some connections until the time is over or next has no more, and
// returns the times of all answers; each must be 202.
func hammer(b testing.TB, url string, connections int, mediaType string, next func() (key string, body []byte)) spread {
	b.Helper()
	var mu sync.Mutex
	var all spread
	var group errgroup.Group
	for range connections {
		group.Go(func() error {
			c, err := dial(url)
			if err != nil {
				return err
			}
			defer c.conn.Close()
			var took spread
			for key, body := next(); body != nil; key, body = next() {
				began := time.Now()
				status, err := c.post(mediaType, key, body)
				if err != nil || status != http.StatusAccepted {
					return fmt.Errorf("%s: %d %w", key, status, err)
				}
				took = append(took, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return all
}

// until gives numbered bodies for a time.
func until(deadline time.Time, body func(n int) []byte) func() (string, []byte) {
	var serial atomic.Int64
	return func() (string, []byte) {
		if time.Now().After(deadline) {
			return "", nil
		}
		n := int(serial.Add(1))
		return "k-" + strconv.Itoa(n), body(n)
	}
}

// smallEvent is a point of some 300 bytes.
func smallEvent(n int) []byte {
	return fmt.Appendf(nil, `{"type":"Feature","id":%d,"properties":{"name":"station %d","owner":"Landesamt für Vermessung","checked":"2026-11-30T12:00:00Z","readings":[12.5,13.25,11.75,12.0],"note":"moved by two metres to the north, as agreed"},"geometry":{"type":"Point","coordinates":[%.6f,%.6f]}}`,
		n, n, 5+float64(n%100_000)/10_000, 47+float64(n%70_000)/10_000)
}

// queuedEvent is a polygon of five points: every second one crosses itself, and every
// third is in UTM.
func queuedEvent(n int) []byte {
	x, y, size, crs := 5+float64(n%90_000)/10_000, 47+float64(n%70_000)/10_000, 0.001, ""
	if n%3 == 0 {
		x, y, size = 300_000+float64(n%400_000), 5_300_000+float64(n%600_000), 100
		crs = `"crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::25832"}},`
	}
	corners := [4][2]float64{{x, y}, {x + size, y}, {x + size, y + size}, {x, y + size}}
	if n%2 == 1 {
		corners[1], corners[2] = corners[2], corners[1]
	}
	ring := fmt.Sprintf("[%f,%f],[%f,%f],[%f,%f],[%f,%f],[%f,%f]", corners[0][0], corners[0][1], corners[1][0], corners[1][1],
		corners[2][0], corners[2][1], corners[3][0], corners[3][1], corners[0][0], corners[0][1])
	return fmt.Appendf(nil, `{"type":"Feature",%s"id":%d,"properties":{"parcel":"%08d","owner":"Landesamt für Vermessung","use":"arable"},"geometry":{"type":"Polygon","coordinates":[[%s]]}}`, crs, n, n, ring)
}

// sequence is a batch of thousand events.
func sequence(n int, event func(n int) []byte) []byte {
	var body bytes.Buffer
	for i := range 1000 {
		body.WriteByte(0x1e)
		body.Write(event(n*1000 + i))
		body.WriteByte('\n')
	}
	return body.Bytes()
}

// fill queues events as batches.
func (s *server) fill(b testing.TB, events int) {
	b.Helper()
	var serial atomic.Int64
	hammer(b, s.url, 4, "application/geo+json-seq", func() (string, []byte) {
		n := int(serial.Add(1))
		if n > events/1000 {
			return "", nil
		}
		return fmt.Sprintf("fill-%d", n), sequence(n, queuedEvent)
	})
}

// BenchmarkDoor measures what the door takes: an event a request, and thousand.
func BenchmarkDoor(b *testing.B) {
	for b.Loop() {
		plain := plainDoor(b)
		s := startDurable(b, nil)
		web := s.startWeighed("web")
		took := hammer(b, s.url, doorConnections, "application/geo+json", until(time.Now().Add(doorTime), smallEvent))
		rate := float64(len(took)) / doorTime.Seconds()
		b.Logf("an event a request, %d connections: %.0f/s, p99 %s (%s); one River insert a request: %.0f/s, p99 %s; %.1f×; web %.0f MB",
			doorConnections, rate, ms(took.at(0.99)), took, plain.rate, ms(plain.took.at(0.99)), rate/plain.rate, web.peak())
		b.ReportMetric(rate, "events/s")
		b.ReportMetric(took.at(0.99).Seconds()*1000, "ms/p99")
		b.ReportMetric(rate/plain.rate, "×/plain")
		s.exec("truncate events, river_job")
		took = hammer(b, s.url, 8, "application/geo+json-seq", until(time.Now().Add(doorTime), func(n int) []byte { return sequence(n, smallEvent) }))
		rate = 1000 * float64(len(took)) / doorTime.Seconds()
		b.Logf("thousand events a request, 8 connections: %.0f events/s, %s; web %.0f MB", rate, took, web.peak())
		b.ReportMetric(rate, "batched-events/s")
		web.end()
	}
}

type plainRate struct {
	rate float64
	took spread
}

// plainJob is a job whose event is its arguments, as plain River would have it.
type plainJob struct {
	Body string `json:"body"`
}

func (plainJob) Kind() string { return "plain" }

// plainDoor is what everybody writes first: a handler that inserts a River job a
// request.
func plainDoor(b testing.TB) plainRate {
	s := startDurable(b, nil)
	pool, err := store.ConnectRiver(b.Context(), s.env["DATABASE_URL"], 16)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = client.Insert(r.Context(), plainJob{string(body)}, nil)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	const plainTime = doorTime / 3
	took := hammer(b, "http://"+listener.Addr().String(), doorConnections, "application/geo+json", until(time.Now().Add(plainTime), smallEvent))
	return plainRate{float64(len(took)) / plainTime.Seconds(), took}
}

type noopArgs struct {
	N int `json:"n"`
}

func (noopArgs) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
}

func (noopWorker) Work(context.Context, *river.Job[noopArgs]) error { return nil }

// noopRate is how many jobs a second River works that do nothing, in this very
// database.
func noopRate(b testing.TB, s *server, workers int) float64 {
	pool, err := store.ConnectRiver(b.Context(), s.env["DATABASE_URL"], 16)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	all := river.NewWorkers()
	river.AddWorker(all, noopWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: all, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
		Queues: map[string]river.QueueConfig{"noop": {MaxWorkers: workers}},
	})
	if err != nil {
		b.Fatal(err)
	}
	params := make([]river.InsertManyParams, noopJobs)
	for i := range params {
		params[i] = river.InsertManyParams{Args: noopArgs{i}, InsertOpts: &river.InsertOpts{Queue: "noop"}}
	}
	if _, err := client.InsertManyFast(b.Context(), params); err != nil {
		b.Fatal(err)
	}
	s.exec("analyze river_job")
	began := time.Now()
	if err := client.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	s.await(func() bool {
		return s.count("select count(*) from river_job where kind = 'noop' and state <> 'completed'") == 0
	})
	rate := noopJobs / time.Since(began).Seconds()
	if err := client.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	s.exec("delete from river_job where kind = 'noop'")
	s.exec("vacuum analyze river_job")
	return rate
}

// await waits for what a benchmark waits for: longer than a test does.
func (s *server) await(cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !cond(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within ten minutes\n%s", s.log.tail(3000))
		}
	}
}

// BenchmarkPipeline measures events end to end from a full queue: half of them good,
// a third in another CRS, into the features table.
func BenchmarkPipeline(b *testing.B) {
	for b.Loop() {
		s := startDurable(b, nil)
		web := s.startWeighed("web")
		before := noopRate(b, s, 2000)
		s.fill(b, queueEvents)
		web.end()
		s.exec("vacuum analyze events")
		s.exec("vacuum analyze river_job")
		began := time.Now()
		work := s.startWeighed("work")
		s.await(func() bool {
			return s.count("select count(*) from events where finished_at is null") == 0
		})
		rate := queueEvents / time.Since(began).Seconds()
		dead, processed := s.count("select count(*) from dead_letters"), s.count("select count(*) from features")
		if dead != queueEvents/2 || processed != queueEvents/2 {
			b.Errorf("%d dead, %d processed", dead, processed)
		}
		peak := work.peak()
		work.end()
		after := noopRate(b, s, 2000)
		noop := (before + after) / 2
		b.Logf("end to end from a full queue of %d: %.0f/s; River's no-op jobs %.0f/s; %.2f of it; work %.0f MB", queueEvents, rate, noop, rate/noop, peak)
		b.ReportMetric(rate, "events/s")
		b.ReportMetric(rate/noop, "of-noop")
		b.ReportMetric(peak, "MB")
	}
}

// BenchmarkSustained measures door and pipeline at once, at a steady rate.
func BenchmarkSustained(b *testing.B) {
	for b.Loop() {
		s := startDurable(b, nil)
		serve := s.startWeighed("serve")
		began := time.Now()
		var serial atomic.Int64
		var backlog []int
		stop := make(chan struct{})
		var sampling sync.WaitGroup
		sampling.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Second):
					backlog = append(backlog, s.count("select count(*) from events where finished_at is null"))
				}
			}
		})
		took := hammer(b, s.url, doorConnections, "application/geo+json", func() (string, []byte) {
			n := int(serial.Add(1))
			due := began.Add(time.Duration(n) * time.Second / sustainedRate)
			if due.Sub(began) > sustainedTime || time.Since(began) > sustainedTime {
				return "", nil
			}
			time.Sleep(time.Until(due))
			return "k-" + strconv.Itoa(n), queuedEvent(n)
		})
		rate := float64(len(took)) / time.Since(began).Seconds()
		close(stop)
		sampling.Wait()
		ended := time.Now()
		s.await(func() bool {
			return s.count("select count(*) from events where finished_at is null") == 0
		})
		b.Logf("door and pipeline at once: %.0f/s of %d for %s, %s; backlog every 2 s %v, gone in %s; serve %.0f MB",
			rate, sustainedRate, sustainedTime, took, backlog, time.Since(ended).Round(time.Millisecond), serve.peak())
		b.ReportMetric(rate, "events/s")
		b.ReportMetric(serve.peak(), "MB")
		serve.end()
	}
}

// BenchmarkRedrive measures an order of 100,000 letters from the click to the last
// one replayed.
func BenchmarkRedrive(b *testing.B) {
	for b.Loop() {
		s := startDurable(b, map[string]string{"GEODLQ_MAX_ATTEMPTS": "1"})
		serve := s.startWeighed("serve")
		// The sink refuses all, for now.
		s.exec("alter table features add constraint closed check (false)")
		var serial atomic.Int64
		began := time.Now()
		hammer(b, s.url, 4, "application/geo+json-seq", func() (string, []byte) {
			n := int(serial.Add(1))
			if n > redriveLetters/1000 {
				return "", nil
			}
			return fmt.Sprintf("fill-%d", n), sequence(n, smallEvent)
		})
		s.await(func() bool {
			return s.count("select count(*) from dead_letters where status = 'pending'") == redriveLetters
		})
		refused := redriveLetters / time.Since(began).Seconds()
		s.exec("alter table features drop constraint closed")
		s.exec("vacuum analyze dead_letters")
		s.exec("vacuum analyze events")
		clicked := time.Now()
		order := s.do("POST", "/v1/redrives", map[string]string{"Content-Type": "application/json"}, []byte(`{"filter":{"status":"pending"},"reason":"the sink takes them now"}`))
		if order.status >= 300 {
			b.Fatalf("%d %s", order.status, order.body)
		}
		s.await(func() bool {
			return s.count("select count(*) from dead_letters where status = 'replayed'") == redriveLetters
		})
		rate := redriveLetters / time.Since(clicked).Seconds()
		b.Logf("a sink that refuses all: %.0f dead a second; redrive of %d: %.0f/s from the order to the last one replayed; serve %.0f MB",
			refused, redriveLetters, rate, serve.peak())
		b.ReportMetric(rate, "letters/s")
		serve.end()
	}
}

// BenchmarkUploads weighs the web process under 64 large uploads at once: what is over
// the budget is 503.
func BenchmarkUploads(b *testing.B) {
	for b.Loop() {
		s := startDurable(b, nil)
		web := s.startWeighed("web")
		head, tail := []byte(`{"type":"Feature","geometry":null,"properties":{"n":"`), []byte(`"}}`)
		body := append(bytes.Repeat([]byte{'x'}, uploadBytes-len(tail)), tail...)
		copy(body, head)
		var mu sync.Mutex
		answers := map[int]int{}
		var group errgroup.Group
		for i := range 64 {
			group.Go(func() error {
				c, err := dial(s.url)
				if err != nil {
					return err
				}
				defer c.conn.Close()
				status, err := c.post("application/geo+json", fmt.Sprintf("upload-%d", i), body)
				mu.Lock()
				defer mu.Unlock()
				answers[status]++
				return err
			})
		}
		if err := group.Wait(); err != nil {
			b.Error(err)
		}
		if answers[http.StatusAccepted] == 0 || answers[http.StatusAccepted]+answers[http.StatusServiceUnavailable] != 64 {
			b.Errorf("answers: %v", answers)
		}
		b.Logf("64 uploads of 32 MiB: %v; web %.0f MB", answers, web.peak())
		b.ReportMetric(web.peak(), "MB")
		web.end()
	}
}

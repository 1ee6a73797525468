package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// commandVariable makes this test binary the program itself, so that tests can
// kill it.
const commandVariable = "GEODLQ_TEST_COMMAND"

func TestMain(m *testing.M) {
	if command := os.Getenv(commandVariable); command != "" {
		args := []string{command}
		if len(os.Args) > 1 && os.Args[1] == runEvents.name {
			args = os.Args[1:] // started by a worker that is this binary too
		}
		limitAddresses()
		limitFiles()
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		if err := run(ctx, args, os.Getenv, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Main(m))
}

// memoryVariable bounds what a process may take beyond what it has at its start, in
// bytes: over it, it dies as for lack of memory.
const memoryVariable = "GEODLQ_TEST_MEMORY"

// diskVariable bounds the size of every file that a process writes, in bytes, as if
// its disk were full.
const diskVariable = "GEODLQ_TEST_DISK"

func limitFiles() {
	limit, err := strconv.ParseUint(os.Getenv(diskVariable), 10, 64)
	if err != nil {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
}

func limitAddresses() {
	more, err := strconv.ParseUint(os.Getenv(memoryVariable), 10, 64)
	if err != nil {
		return
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(statm), &pages); err != nil {
		panic(err)
	}
	limit := pages*uint64(os.Getpagesize()) + more
	var inherited syscall.Rlimit // a child of a limited process can't have more
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &inherited); err != nil {
		panic(err)
	}
	limit = min(limit, inherited.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
}

// startProcess runs a command in a process of its own, on the server's database.
func (s *server) startProcess(command string, env map[string]string) *exec.Cmd {
	s.t.Helper()
	all := maps.Clone(s.env)
	maps.Copy(all, env)
	all[commandVariable] = command
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "GOCOVERDIR="+s.t.TempDir())
	for name, value := range all {
		process.Env = append(process.Env, name+"="+value)
	}
	process.Stderr = s.log
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return process
}

// server is the whole program, running over a database of its own.
type server struct {
	t    testing.TB
	url  string
	db   *pgxpool.Pool
	env  map[string]string
	log  *syncBuffer
	stop func()
}

// quick are settings under which failures come to their end in a test's time.
var quick = map[string]string{
	"GEODLQ_ADDR": "127.0.0.1:0", "GEODLQ_MAX_ATTEMPTS": "3", "GEODLQ_RETRY_BASE": "20ms", "GEODLQ_RETRY_MAX": "50ms",
	"GEODLQ_SINK_TIMEOUT": "1s", "GEODLQ_LOG_LEVEL": "debug", "GEODLQ_UNDO_WINDOW": "0s",
}

// startServer runs geodlq serve with env over quick, and stops it with the test.
func startServer(t testing.TB, env map[string]string) *server {
	t.Helper()
	return startCommand(t, "serve", pgtest.URL(t), env)
}

func startCommand(t testing.TB, command, databaseURL string, env map[string]string) *server {
	t.Helper()
	all := maps.Clone(quick)
	all["GEODLQ_DATA"] = dataOf(t, databaseURL)
	maps.Copy(all, env)
	all["DATABASE_URL"] = databaseURL
	s := &server{t: t, env: all, log: &syncBuffer{}}
	stdout, printed := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{command}, func(name string) string { return all[name] }, printed, s.log)
		printed.Close()
	}()
	line := make(chan string, 1)
	go func() {
		var first [200]byte
		n, _ := stdout.Read(first[:])
		line <- string(first[:n])
		_, _ = io.Copy(io.Discard, stdout)
	}()
	select {
	case text := <-line:
		_, s.url, _ = strings.Cut(strings.TrimSpace(text), " on ")
	case err := <-ended:
		t.Fatalf("geodlq %s ended: %v\n%s", command, err, s.log)
	case <-time.After(60 * time.Second):
		t.Fatalf("geodlq %s did not start\n%s", command, s.log)
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("geodlq %s: %v", command, err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", s.log.tail(4000))
		}
	})
	t.Cleanup(s.stop)
	s.connect(databaseURL)
	return s
}

// newServer is a server whose processes a test starts by itself, at an address that
// stays the same.
func newServer(t testing.TB, databaseURL string, env map[string]string) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	all := maps.Clone(quick)
	all["GEODLQ_DATA"] = t.TempDir()
	maps.Copy(all, env)
	all["GEODLQ_ADDR"], all["DATABASE_URL"] = address, databaseURL
	s := &server{t: t, env: all, log: &syncBuffer{}, url: "http://" + address}
	if databaseURL != "" {
		s.connect(databaseURL)
	}
	return s
}

// connect makes the connection through which the test itself looks.
func (s *server) connect(databaseURL string) {
	s.t.Helper()
	db, err := store.Connect(context.Background(), databaseURL, 4)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	s.db = db
}

// startWeb starts a process of the web, and waits until it answers.
func (s *server) startWeb(env map[string]string) *exec.Cmd {
	s.t.Helper()
	web := s.startProcess("web", env)
	s.awaitWeb()
	return web
}

// awaitWeb waits until a process answers.
func (s *server) awaitWeb() {
	s.t.Helper()
	s.eventually("the web to answer", func() bool {
		response, err := http.Get(s.url + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// kill ends a process as a crash would.
func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// dataOf is the data directory of the servers over one database, with its blobs.
func dataOf(t testing.TB, databaseURL string) string {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("geodlq-data-%x", sha256.Sum256([]byte(databaseURL)))[:32])
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("answer %d %q: %v", a.status, a.body, err)
	}
	return out
}

func (s *server) do(method, path string, header map[string]string, body []byte) answer {
	s.t.Helper()
	request, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{response.StatusCode, response.Header, text}
}

func (s *server) get(path string) answer { s.t.Helper(); return s.do("GET", path, nil, nil) }

// post sends GeoJSON under a key.
func (s *server) post(key, body string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json", "Idempotency-Key": key}, []byte(body))
}

func eventPath(key string) string { return "/v1/events/" + url.PathEscape(key) }

// settle waits until an event, and its children, are at their end.
func (s *server) settle(key string) map[string]any {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		a := s.get(eventPath(key))
		if a.status != 200 {
			s.t.Fatalf("GET event %q: %d %s", key, a.status, a.body)
		}
		event := a.json(s.t)
		switch event["state"] {
		case "processed", "dead":
			return event
		case "split":
			for _, child := range event["children"].([]any) {
				s.settle(child.(string))
			}
			return event
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("event %q is still %v\n%s", key, event, s.log.tail(3000))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *server) letter(id any) map[string]any {
	s.t.Helper()
	a := s.get(fmt.Sprintf("/v1/dead-letters/%.0f", id))
	if a.status != 200 {
		s.t.Fatalf("letter %v: %d %s", id, a.status, a.body)
	}
	return a.json(s.t)
}

func properties(letter map[string]any) map[string]any { return letter["properties"].(map[string]any) }

func (s *server) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.db.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *server) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(context.Background(), query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// eventually waits for cond.
func (s *server) eventually(what string, cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within two minutes: %s\n%s", what, s.log.tail(3000))
		}
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *syncBuffer) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}

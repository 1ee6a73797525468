package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"geodlq/internal/dlq"
)

func open(t testing.TB, dir string, limit int64) *Spool {
	t.Helper()
	s, err := Open(Options{Dir: dir, Max: limit, DedupeWindow: time.Hour, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// left is a copy of what a process leaves on disk when it is killed now.
func left(t testing.TB, dir string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "spool")
	if out, err := exec.Command("cp", "-r", dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return copied
}

func event(key, body string) Record {
	return Record{Event: &dlq.NewEvent{
		WorkKey: key, Source: "s", Body: []byte(body), MediaType: "application/geo+json",
		Headers: map[string]string{"ce-id": "ü\"<&>"}, ReceivedAt: time.Date(2026, 1, 31, 3, 0, 0, 5000, time.UTC),
	}}
}

func report(reportKey, workKey string) Record {
	return Record{Report: &dlq.Report{
		ReportKey: reportKey, WorkKey: workKey, Task: "t", Source: "s", Error: "e",
		Geometry: []byte(` {"type" : "Point"} `), Payload: []byte(`{"n": 9007199254740993}`), Bounds: []float64{1, 2, 3, 4.000000000000001},
	}}
}

func (s *Spool) mustAppend(t testing.TB, records ...Record) []Result {
	t.Helper()
	results, err := s.Append(t.Context(), records)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// loadAll loads everything and returns it.
func (s *Spool) loadAll(t testing.TB) []Record {
	t.Helper()
	var all []Record
	if _, err := s.Load(t.Context(), func(_ context.Context, records []Record) (map[int]error, error) {
		all = append(all, records...)
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func keys(records []Record) string {
	var out []string
	for _, r := range records {
		if r.Event != nil {
			out = append(out, r.Event.WorkKey)
		} else {
			out = append(out, r.Report.ReportKey)
		}
	}
	return strings.Join(out, " ")
}

// segmentsOf are all files of events under a spool's directory.
func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"+segmentExt))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestWhatIsTakenComesBackExactlyAndInOrder(t *testing.T) {
	t.Parallel()
	bodies := []string{"", "\x00\xff\xfe\n\r\n", "\xef\xbb\xbf{}", `{"a":1,"a":2,"n":12345678901234567}`, strings.Repeat("0123456789", 1<<18)}
	s := open(t, t.TempDir(), 1<<30)
	for i, body := range bodies {
		s.mustAppend(t, event(fmt.Sprintf("k%d", i), body), report(fmt.Sprintf("r%d", i), "w"))
	}
	got := s.loadAll(t)
	if keys(got) != "k0 r0 k1 r1 k2 r2 k3 r3 k4 r4" {
		t.Fatal(keys(got))
	}
	for i, body := range bodies {
		e, want := got[2*i].Event, event(fmt.Sprintf("k%d", i), body).Event
		if string(e.Body) != body || e.Headers["ce-id"] != want.Headers["ce-id"] || !e.ReceivedAt.Equal(want.ReceivedAt) || e.MediaType != want.MediaType {
			t.Errorf("event %d came back as %+v", i, e)
		}
	}
	if r, want := got[1].Report, report("r0", "w").Report; !bytes.Equal(r.Geometry, want.Geometry) || !bytes.Equal(r.Payload, want.Payload) || r.Bounds[3] != want.Bounds[3] {
		t.Errorf("%+v", r)
	}
	if s.Held() != 0 || len(s.Days()) != 0 {
		t.Errorf("%d are held", s.Held())
	}
	if entries, _ := os.ReadDir(s.options.Dir); len(entries) != 0 {
		t.Errorf("%v is left behind", entries)
	}
}

func TestAKeyIsHeldOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), 1<<30)
	again := s.mustAppend(t, event("k", "a"), event("k", "a"), event("k", "b"), report("r", "w"), report("r", "w"), report("r", "x"), report("", "w"), report("", "w"))
	want := []Result{{}, {Duplicate: true}, {Conflict: true}, {}, {Duplicate: true}, {Conflict: true}, {}, {}}
	for i := range want {
		if again[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, again[i], want[i])
		}
	}
	if r := s.mustAppend(t, event("k", "a"))[0]; !r.Duplicate {
		t.Errorf("%+v", r)
	}
	if at, ok := s.Lookup("k"); !ok || at.Year() != 2026 {
		t.Errorf("%v %v", at, ok)
	}
	if !s.Holds([]dlq.NewEvent{{WorkKey: "other"}, {WorkKey: "k"}}) || s.Holds([]dlq.NewEvent{{WorkKey: "other"}}) {
		t.Error("it does not know what it holds")
	}
	if days := s.Days(); len(days) != 1 || days[0] != (dlq.LedgerSpooled{Source: "s", Day: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Count: 1}) || s.Held() != 4 {
		t.Errorf("%v, %d in all", days, s.Held())
	}
	// Content is a new unit after the window.
	old, late := event("c", "x"), event("c", "x")
	old.Event.Content, late.Event.Content = true, true
	late.Event.ReceivedAt = late.Event.ReceivedAt.Add(2 * time.Hour)
	if r := s.mustAppend(t, old, late); r[0] != (Result{}) || r[1] != (Result{}) {
		t.Errorf("%+v", r)
	}
}

func TestWhatAKilledProcessLeftIsAdopted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	var writing sync.WaitGroup
	for i := range 50 {
		writing.Go(func() { s.mustAppend(t, event(fmt.Sprintf("k%02d", i), "x")) })
	}
	writing.Wait()
	other := open(t, left(t, dir), 1<<30)
	if _, ok := other.Lookup("k17"); !ok || other.Held() != 50 {
		t.Errorf("%d are held", other.Held())
	}
	if r := other.mustAppend(t, event("k17", "x"))[0]; !r.Duplicate {
		t.Error("what was adopted was taken again")
	}
	if got := other.loadAll(t); len(got) != 50 {
		t.Errorf("%d were loaded", len(got))
	}
	// One that lives is left alone.
	third := open(t, dir, 1<<30)
	if got := third.loadAll(t); len(got) != 0 || third.Held() != 0 {
		t.Errorf("%s was taken from a process that lives", keys(got))
	}
}

func TestATornLastLineIsToleratedAndABadOneSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	s.mustAppend(t, event("k1", "a"), event("k2", "b"), event("k3", "c"), event("k4", "d"))
	copied := left(t, dir)
	path := segmentsOf(t, copied)[0]
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[1] = bytes.Replace(lines[1], []byte(`"k2"`), []byte(`"kX"`), 1) // its checksum tells
	lines[2] = []byte("not JSON at all\n")
	torn := append(bytes.Join(lines, nil), lines[0][:len(lines[0])/2]...)
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	status, err := Inspect(copied)
	if err != nil || len(status.Volumes) != 1 || status.Volumes[0].Events != 2 || status.Volumes[0].Bad != 2 || status.Volumes[0].Torn != 1 || status.Volumes[0].Live {
		t.Fatalf("%+v %v", status, err)
	}
	other := open(t, copied, 1<<30)
	if got := keys(other.loadAll(t)); got != "k1 k4" {
		t.Errorf("loaded %s", got)
	}
	status, err = Inspect(copied)
	if err != nil || len(status.Volumes) != 0 || len(status.Bad) != 1 || status.Bad[0].Lines != 2 {
		t.Fatalf("%+v %v", status, err)
	}
	if kept, _ := os.ReadFile(status.Bad[0].Path); !bytes.Equal(kept, bytes.Join(lines[1:3], nil)) {
		t.Errorf("set aside: %q", kept)
	}
}

func TestALoadThatFailsGoesOnWhereItStood(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), 1<<30)
	for i := range 3 * batchRecords {
		s.mustAppend(t, event(fmt.Sprintf("k%04d", i), "x"))
	}
	var seen []Record
	away := errors.New("away")
	loaded, err := s.Load(t.Context(), func(_ context.Context, records []Record) (map[int]error, error) {
		if len(seen) >= batchRecords {
			return nil, away
		}
		seen = append(seen, records...)
		return nil, nil
	})
	if !errors.Is(err, away) || loaded != batchRecords || s.Held() != 2*batchRecords {
		t.Fatalf("%d loaded, %d held, %v", loaded, s.Held(), err)
	}
	s.mustAppend(t, event("later", "x"))
	rest := s.loadAll(t)
	if len(rest) != 2*batchRecords+1 || rest[0].Event.WorkKey != "k0500" || rest[len(rest)-1].Event.WorkKey != "later" {
		t.Errorf("%d, from %s", len(rest), rest[0].Event.WorkKey)
	}
}

func TestWhatIsRefusedForGoodKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	s.mustAppend(t, event("k1", "a"), event("k2", "b"), event("k3", "c"))
	loaded, err := s.Load(t.Context(), func(context.Context, []Record) (map[int]error, error) {
		return map[int]error{1: errors.New("no")}, nil
	})
	if err != nil || loaded != 2 || s.Held() != 0 {
		t.Errorf("%d loaded, %d held, %v", loaded, s.Held(), err)
	}
	if status, err := Inspect(dir); err != nil || len(status.Bad) != 1 || status.Bad[0].Lines != 1 {
		t.Errorf("%+v %v", status, err)
	}
}

func TestTheSpoolHoldsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, 64<<10)
	taken := 0
	var err error
	for ; err == nil; taken++ {
		_, err = s.Append(t.Context(), []Record{event(fmt.Sprintf("k%d", taken), strings.Repeat("x", 1000))})
	}
	taken--
	if !errors.Is(err, ErrFull) || taken < 20 {
		t.Fatalf("%d were taken: %v", taken, err)
	}
	if used, limit := s.Usage(); used > limit {
		t.Errorf("%d of %d", used, limit)
	}
	if _, ok := s.Lookup(fmt.Sprintf("k%d", taken)); ok {
		t.Error("what was refused is said to be held")
	}
	if len(segmentsOf(t, dir)) < 3 {
		t.Errorf("it was not rotated: %v", segmentsOf(t, dir))
	}
	// Another process has no more room in the same directory.
	if _, err := open(t, dir, 64<<10).Append(t.Context(), []Record{event("other", strings.Repeat("x", 30<<10))}); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	if got := s.loadAll(t); len(got) != taken {
		t.Errorf("%d were loaded, %d taken", len(got), taken)
	}
	s.mustAppend(t, event("again", "x"))
}

// A refused record must not make its twin in the same group a duplicate of nothing.
func TestARefusedRecordHasNoDuplicate(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), 8<<10)
	large := strings.Repeat("x", 10<<10)
	group := []*pending{
		{records: []Record{event("k", large)}, results: make([]Result, 1), done: make(chan error, 1)},
		{records: []Record{event("k", large)}, results: make([]Result, 1), done: make(chan error, 1)},
	}
	s.write(group)
	for i, p := range group {
		if err := <-p.done; !errors.Is(err, ErrFull) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestAFailedWriteLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	s.mustAppend(t, event("k1", "a"))
	s.file.Lock()
	good := s.active
	var err error
	if s.active, err = os.Open(good.Name()); err != nil { // can't be written
		t.Fatal(err)
	}
	s.file.Unlock()
	if _, err := s.Append(t.Context(), []Record{event("k2", "b")}); err == nil {
		t.Fatal("it was taken")
	}
	if _, ok := s.Lookup("k2"); ok || s.Held() != 1 {
		t.Error("what failed is said to be held")
	}
	s.mustAppend(t, event("k2", "b"))
	if got := keys(s.loadAll(t)); got != "k1 k2" {
		t.Errorf("loaded %s", got)
	}
}

// It is not parallel: the limit is the whole process's.
func TestAGroupThatWasWrittenInPartIsTakenBack(t *testing.T) {
	s := open(t, t.TempDir(), 1<<30)
	s.mustAppend(t, event("k1", "a"))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := syscall.Rlimit{Cur: uint64(s.size) + 8<<10, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	_, err := s.Append(t.Context(), []Record{event("k2", "b"), event("k3", strings.Repeat("x", 16<<10))})
	if restored := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if err == nil {
		t.Fatal("it was taken")
	}
	if got := keys(s.loadAll(t)); got != "k1" {
		t.Errorf("loaded %s", got)
	}
}

func TestAClosedSpoolTakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir, Max: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.mustAppend(t, event("k", "a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), []Record{event("l", "a")}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if got := keys(open(t, dir, 1<<20).loadAll(t)); got != "k" {
		t.Errorf("the next process loaded %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "bad")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// BenchmarkAppend is 64 senders of 300-byte events at once, each synced before it is
// answered.
func BenchmarkAppend(b *testing.B) {
	s := open(b, b.TempDir(), 1<<40)
	body := strings.Repeat("x", 300)
	b.SetParallelism(32) // of 2 cores: 64
	var serial sync.Mutex
	n := 0
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			serial.Lock()
			n++
			key := fmt.Sprint(n)
			serial.Unlock()
			if _, err := s.Append(b.Context(), []Record{event(key, body)}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

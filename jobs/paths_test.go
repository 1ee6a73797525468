package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// sinkFunc is a sink that does what a test wants.
type sinkFunc func(ctx context.Context, d *pipeline.Delivery) error

func (f sinkFunc) Deliver(ctx context.Context, d *pipeline.Delivery) error { return f(ctx, d) }

// bench is a client over a database of its own.
type bench struct {
	t    *testing.T
	pool *pgxpool.Pool
	s    *store.Store
}

// work runs jobs with a sink until the test ends.
func work(t *testing.T, sink func(s *store.Store) sinkFunc) *bench {
	t.Helper()
	url := pgtest.URL(t)
	pool, err := store.Connect(t.Context(), url, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	river, err := store.ConnectRiver(t.Context(), url, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(river.Close)
	s := store.New(pool, nil, store.Rules{DedupeWindow: time.Hour, MaxJobAttempts: MaxJobAttempts(2), RedriveCap: 5, InlineMax: 1 << 20})
	client, err := New(river, s, Config{
		Workers: 8, MaxTries: 2, RetryBase: time.Millisecond, RetryMax: time.Millisecond, RescueAfter: time.Minute,
		KeyRetention: time.Hour, BodyMax: 1 << 20, LargeMax: 1 << 20, StopTimeout: time.Second, SinkTimeout: time.Second, sink: sink(s),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Stop(context.Background()) })
	return &bench{t, pool, s}
}

func (b *bench) send(key string) {
	b.t.Helper()
	_, err := b.s.Accept(b.t.Context(), []dlq.NewEvent{{
		WorkKey: key, Source: dlq.DefaultSource, Body: []byte(`{"type":"Point","coordinates":[13.4,52.5]}`), MediaType: "application/geo+json",
	}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// settle waits for the end of an event.
func (b *bench) settle(key string) dlq.EventState {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		status, err := b.s.EventStatus(b.t.Context(), key)
		if err != nil {
			b.t.Fatal(err)
		}
		if status.State == dlq.EventProcessed || status.State == dlq.EventDead {
			return status.State
		}
	}
	b.t.Fatalf("%s does not end", key)
	return ""
}

// A worker that does not return ends in one letter, which knows where it was, and
// keeps none of the others from being worked.
func TestAWorkerThatDoesNotReturnMakesOneLetter(t *testing.T) {
	t.Parallel()
	ends := map[string]func(){
		"panic":     func() { panic("no\x00\xff") },
		"goexit":    func() { runtime.Goexit() },
		"nil panic": func() { panic(nil) }, //nolint:govet // what a test does
	}
	b := work(t, func(s *store.Store) sinkFunc {
		return func(ctx context.Context, d *pipeline.Delivery) error {
			if end := ends[d.Event.WorkKey]; end != nil {
				end()
			}
			return s.Complete(ctx, d.Event, d.Tries, &store.Feature{WKB: d.WKB})
		}
	})
	for key := range ends {
		b.send(key)
		b.send("beside " + key)
	}
	for key := range ends {
		if state := b.settle(key); state != dlq.EventDead {
			t.Errorf("%s: %s", key, state)
		}
		if state := b.settle("beside " + key); state != dlq.EventProcessed {
			t.Errorf("beside %s: %s", key, state)
		}
		var n int
		var stage, class string
		var lost, unknown bool
		err := b.pool.QueryRow(t.Context(), `select count(*) over (), stage, class, context_lost, outcome_unknown from dead_letters where work_key = $1`, key).
			Scan(&n, &stage, &class, &lost, &unknown)
		if err != nil || n != 1 || stage != "downstream" || class != "unknown" || lost || !unknown {
			t.Errorf("%s: %d letters, %s, %s, context lost: %v, outcome unknown: %v (%v)", key, n, stage, class, lost, unknown, err)
		}
	}
	left := len(ends)
	for deadline := time.Now().Add(30 * time.Second); left > 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		err := b.pool.QueryRow(t.Context(), "select count(*) from river_job where kind = 'process_event' and state not in ('completed', 'cancelled')").Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
	}
	if left > 0 {
		t.Errorf("%d jobs are not reported", left)
	}
}

// One NUL in an error's text would make River report the whole batch again for ever.
func TestErrorTextsAreCleanBeforeRiverSeesThem(t *testing.T) {
	t.Parallel()
	b := work(t, func(s *store.Store) sinkFunc {
		return func(ctx context.Context, d *pipeline.Delivery) error {
			if strings.HasPrefix(d.Event.WorkKey, "bad") {
				return &pipeline.DeliveryError{Class: dlq.ClassUpstreamError, Transient: d.Event.WorkKey == "bad later", Text: "a\x00b\xffc" + strings.Repeat("é", 5000)}
			}
			return s.Complete(ctx, d.Event, d.Tries, nil)
		}
	})
	keys := []string{"bad", "bad later"}
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("good %d", i))
	}
	for _, key := range keys {
		b.send(key)
	}
	for _, key := range keys {
		if state := b.settle(key); (state == dlq.EventDead) != strings.HasPrefix(key, "bad") {
			t.Errorf("%s: %s", key, state)
		}
	}
	var clean int
	if err := b.pool.QueryRow(t.Context(), "select count(*) from dead_letters where error like '%a\uFFFDb\uFFFDcé%' and length(error) = 2000").Scan(&clean); err != nil || clean != 2 {
		t.Errorf("%d clean texts (%v)", clean, err)
	}
}

// What our cleaning wraps is still found.
func TestACleanErrorIsStillWhatItWas(t *testing.T) {
	t.Parallel()
	inner := &handBackError{context.Canceled}
	var c cleanErrors
	err := c.Work(t.Context(), nil, func(context.Context) error { return fmt.Errorf("\x00%w", inner) })
	if strings.Contains(err.Error(), "\x00") || !errors.Is(err, context.Canceled) || !isOurs(err) {
		t.Errorf("%v", err)
	}
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// storm is a store at which several connections do everything that moves a unit.
type storm struct {
	*store.Store
	pool   *pgxpool.Pool
	serial atomic.Int64
	mu     sync.Mutex
	done   map[string]int // by what was done
}

func newStorm(t *testing.T) *storm {
	pool := pgtest.Pool(t)
	rules := store.Rules{DedupeWindow: time.Hour, MaxJobAttempts: 30, RedriveCap: 3, UndoWindow: time.Minute, InlineMax: 1 << 20}
	return &storm{Store: store.New(pool, nil, rules), pool: pool, done: map[string]int{}}
}

// pick is an event in one of some states, at random; nil if there is none.
func (s *storm) pick(ctx context.Context, states ...string) (*dlq.Event, error) {
	var id int64
	err := s.pool.QueryRow(ctx, "select id from events where state = any($1) order by random() limit 1", states).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := s.Event(ctx, id)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil, nil // forgotten since
	}
	return e, err
}

func (s *storm) accept(ctx context.Context) error {
	events := make([]dlq.NewEvent, 1+rand.IntN(20))
	for i := range events {
		n := s.serial.Add(1)
		if rand.IntN(4) == 0 {
			n = max(1, n-int64(rand.IntN(50))) // likely one that came before
		}
		events[i] = dlq.NewEvent{WorkKey: fmt.Sprint("k-", n), Source: fmt.Sprint("source-", n%3), Body: []byte("{}"), MediaType: "application/geo+json"}
	}
	_, err := s.Accept(ctx, events)
	return err
}

func (s *storm) complete(ctx context.Context) error {
	e, err := s.pick(ctx, "accepted", "retrying")
	if e == nil || err != nil {
		return err
	}
	return s.Complete(ctx, e, 1, nil)
}

func (s *storm) split(ctx context.Context) error {
	e, err := s.pick(ctx, "accepted")
	if e == nil || err != nil {
		return err
	}
	if e.Child() {
		return s.MarkRetrying(ctx, e)
	}
	return s.Split(ctx, e, 1, []store.Child{{Body: []byte("1"), Encoded: true}, {Body: []byte("2"), Encoded: true}, {Body: []byte("3"), Encoded: true}}, nil)
}

func (s *storm) capture(ctx context.Context) error {
	e, err := s.pick(ctx, "accepted", "retrying")
	if e == nil || err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, "select geodlq_capture($1, null, null, 'a test', now())", e.JobID)
	return err
}

// letters are some with a status.
func (s *storm) letters(ctx context.Context, status string, n int) ([]int64, error) {
	rows, _ := s.pool.Query(ctx, "select id from dead_letters where status = $1 order by random() limit $2", status, n)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (s *storm) redrive(ctx context.Context) error {
	ids, err := s.letters(ctx, "pending", 5)
	if err != nil {
		return err
	}
	_, err = s.Redrive(ctx, ids, "test", "")
	return err
}

func (s *storm) undo(ctx context.Context) error {
	ids, err := s.letters(ctx, "redriving", 1)
	if err != nil || len(ids) == 0 {
		return err
	}
	return s.Undo(ctx, ids[0], "test")
}

// reopen makes a processed event dead again.
func (s *storm) reopen(ctx context.Context) error {
	ids, err := s.letters(ctx, "replayed", 1)
	if err != nil || len(ids) == 0 {
		return err
	}
	return s.Transition(ctx, ids[0], dlq.ActionRelease, "test", "")
}

func (s *storm) forget(ctx context.Context) error {
	if rand.IntN(10) > 0 {
		return nil
	}
	_, err := s.Forget(ctx, 0)
	return err
}

func (s *storm) fold(ctx context.Context) error {
	_, err := s.FoldLedger(ctx)
	return err
}

// expected are the ends that a storm brings about: somebody else was first.
func expected(err error) bool {
	return errors.Is(err, dlq.ErrSuperseded) || errors.Is(err, dlq.ErrConflict) || errors.Is(err, dlq.ErrNotFound)
}

func (s *storm) blow(t *testing.T, ctx context.Context) {
	t.Helper()
	acts := map[string]func(context.Context) error{
		"accept": s.accept, "accept too": s.accept, "complete": s.complete, "split": s.split, "capture": s.capture, "redrive": s.redrive,
		"undo": s.undo, "reopen": s.reopen, "forget": s.forget, "fold": s.fold, "fold too": s.fold,
	}
	group, _ := errgroup.WithContext(ctx)
	for name, act := range acts {
		group.Go(func() error {
			for ctx.Err() == nil {
				// What has begun ends, whatever the time.
				if err := act(context.WithoutCancel(ctx)); err != nil && !expected(err) {
					return fmt.Errorf("%s: %w", name, err)
				} else if err == nil {
					s.mu.Lock()
					s.done[name]++
					s.mu.Unlock()
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (s *storm) check(t *testing.T) *dlq.LedgerCheck {
	t.Helper()
	check, err := s.CheckLedger(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return check
}

func TestTheLedgerAddsUpAtEveryMomentOfAStorm(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	checks := 0
	var wait sync.WaitGroup
	wait.Go(func() {
		for ; ctx.Err() == nil; checks++ {
			check, err := s.CheckLedger(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			if check.Mismatched > 0 {
				t.Errorf("check %d: %+v", checks, check.Mismatches)
				return
			}
		}
	})
	s.blow(t, ctx)
	wait.Wait()
	if check := s.check(t); check.Mismatched > 0 {
		t.Errorf("after it: %+v", check.Mismatches)
	}
	today := dlq.Today(time.Now())
	l, err := s.Ledger(context.Background(), dlq.LedgerQuery{Since: today.AddDate(0, 0, -1), Until: today.AddDate(0, 0, 1)}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if c := l.Totals.LedgerCounts; c.Sum() != c.Received || c.Duplicates == 0 || c.Dead == 0 || c.Processed == 0 {
		t.Errorf("%+v", c)
	}
	t.Logf("%d checks; done: %v; %+v", checks, s.done, l.Totals.LedgerCounts)

	// A hand takes one away.
	var source string
	var day time.Time
	err = s.pool.QueryRow(context.Background(), `delete from events where id = (select id from events where state = 'dead' order by random() limit 1)
		returning source, (received_at at time zone 'UTC')::date`).Scan(&source, &day)
	if err != nil {
		t.Fatal(err)
	}
	check := s.check(t)
	if check.Mismatched != 2 {
		t.Errorf("%+v, want received and dead of %s", check.Mismatches, source)
	}
	for _, m := range check.Mismatches {
		if m.Source != source || !m.Day.Equal(day) || m.Ledger != m.Tables+1 || (m.Column != "received" && m.Column != "dead") {
			t.Errorf("%+v, want one of %s on %s too many", m, source, day)
		}
	}
}

func TestWhatIsLoadedTwiceFromTheSpoolIsNoDuplicate(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	e := dlq.NewEvent{WorkKey: "k", Source: "s", Body: []byte("{}"), MediaType: "application/geo+json",
		ReceivedAt: time.Now().UTC().Truncate(time.Microsecond)}
	again := e
	again.Replayed = true
	other := again
	other.ReceivedAt = e.ReceivedAt.Add(time.Second)
	for i, sent := range []struct {
		event      dlq.NewEvent
		replay     bool
		duplicates int
	}{{e, false, 0}, {again, true, 0}, {again, true, 0}, {other, false, 1}} {
		receipts, err := s.Accept(t.Context(), []dlq.NewEvent{sent.event})
		if err != nil {
			t.Fatal(err)
		}
		if r := receipts[0]; r.Replay != sent.replay || r.Duplicate != (i > 0) {
			t.Errorf("%d: %+v", i, r)
		}
		if n := s.number(t, "select sum(duplicates) from ledger_deltas"); n != sent.duplicates {
			t.Errorf("%d: %d duplicates, not %d", i, n, sent.duplicates)
		}
	}
}

func TestFoldingLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var appended, folded atomic.Int64
	appended.Store(60_000) // more than one statement folds
	if _, err := s.pool.Exec(ctx, "insert into ledger_deltas (source, day, reports) select 's', '2026-01-01', 1 from generate_series(1, 60000)"); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for ctx.Err() == nil {
				n := 1 + rand.IntN(5)
				err := pgx.BeginFunc(context.Background(), s.pool, func(tx pgx.Tx) error {
					for range n {
						if _, err := tx.Exec(context.Background(), "insert into ledger_deltas (source, day, reports) values ('s', '2026-01-01', 1)"); err != nil {
							return err
						}
						time.Sleep(time.Millisecond) // a fold comes between
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				appended.Add(int64(n))
			}
		})
	}
	for range 3 {
		wait.Go(func() {
			for ctx.Err() == nil {
				n, err := s.FoldLedger(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				folded.Add(n)
			}
		})
	}
	wait.Wait()
	n, err := s.FoldLedger(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	folded.Add(n)
	var kept, left int64
	err = s.pool.QueryRow(context.Background(), "select (select sum(reports) from ledger), (select count(*) from ledger_deltas)").Scan(&kept, &left)
	if err != nil {
		t.Fatal(err)
	}
	if kept != appended.Load() || folded.Load() != appended.Load() || left != 0 {
		t.Errorf("%d appended, %d folded, %d in the ledger, %d left", appended.Load(), folded.Load(), kept, left)
	}
}

// A feature stands on the day on which its collection came in.
func TestAFeatureStandsOnItsCollectionsDay(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx := context.Background()
	if _, err := s.Accept(ctx, []dlq.NewEvent{{WorkKey: "k", Source: "s", Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	// As if it had come two days ago; the ledger goes along.
	s.exec(t, "update events set received_at = received_at - interval '2 days'")
	if err := s.split(ctx); err != nil {
		t.Fatal(err)
	}
	today := dlq.Today(time.Now())
	l, err := s.Ledger(ctx, dlq.LedgerQuery{Since: today.AddDate(0, 0, -3), Until: today}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Days) != 1 || l.Days[0].LedgerCounts != (dlq.LedgerCounts{Received: 3, InFlight: 3}) {
		t.Errorf("%+v", l.Days)
	}
	if check := s.check(t); check.Mismatched > 0 {
		t.Errorf("%+v", check.Mismatches)
	}
	// Forgotten, features and collection count on as they did.
	for range 3 {
		if err := s.complete(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := s.Forget(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	if err := s.pool.QueryRow(ctx, "select count(*) from events").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d events are left, %v", left, err)
	}
	if check := s.check(t); check.Mismatched > 0 {
		t.Errorf("forgotten: %+v", check.Mismatches)
	}
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/paulmach/orb"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
	"geodlq/internal/store"
)

// crowd is how many do the same at once.
const crowd = 500

// poisoned tells which of a crowd are bad, spread over it.
func poisoned(n, bad int) bool { return bad > 0 && n%(crowd/bad) == 3 }

// held runs fn while a table is locked, so that what needs it queues up behind the
// first, and comes in crowds when it is free.
func held(t *testing.T, s *storm, table string, fn func(n int)) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table "+table+" in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var done, started sync.WaitGroup
	started.Add(crowd)
	for n := range crowd {
		done.Go(func() {
			started.Done()
			fn(n)
		})
	}
	started.Wait()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	done.Wait()
}

// acceptCrowd accepts events of one key each and returns them as a worker has them.
func acceptCrowd(t *testing.T, s *storm, prefix string) []*dlq.Event {
	t.Helper()
	news := make([]dlq.NewEvent, crowd)
	for i := range news {
		news[i] = dlq.NewEvent{WorkKey: fmt.Sprintf("%s-%03d", prefix, i), Source: "test", Body: []byte("{}"), MediaType: "application/geo+json"}
	}
	if _, err := s.Accept(t.Context(), news); err != nil {
		t.Fatal(err)
	}
	rows, _ := s.pool.Query(t.Context(), "select id from events where work_key like $1 || '-%' order by work_key", prefix)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	events := make([]*dlq.Event, len(ids))
	for i, id := range ids {
		if events[i], err = s.Event(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return events
}

func TestAPoisonRowTouchesItsOwnEventAlone(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	point, err := geo.EncodeWKB(orb.Point{13, 52})
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, `alter table features add constraint no_poison check (properties->>'poison' is null)`)
	for _, bad := range []int{0, 1, 5, 25} {
		events := acceptCrowd(t, s, fmt.Sprintf("crowd%d", bad))
		errs := make([]error, crowd)
		held(t, s, "features", func(n int) {
			f := &store.Feature{Properties: []byte(`{"n":1}`), WKB: point}
			if poisoned(n, bad) {
				f.Properties = [][]byte{[]byte(`{"poison":1}`), []byte(`{"n":`), []byte("{\"n\":\"\xff\"}")}[n%3]
			}
			errs[n] = s.Complete(t.Context(), events[n], 1, f)
		})
		for n, err := range errs {
			var pgErr *pgconn.PgError
			want := []string{"23514", "22P02", "22021"}[n%3]
			switch {
			case !poisoned(n, bad) && err != nil:
				t.Errorf("%d bad: a good one got %v", bad, err)
			case poisoned(n, bad) && (!errors.As(err, &pgErr) || pgErr.Code != want):
				t.Errorf("%d bad: a bad one got %v, not %s", bad, err, want)
			}
		}
		processed := s.number(t, "select count(*) from events where work_key like $1 and state = 'processed'", fmt.Sprintf("crowd%d-%%", bad))
		written := s.number(t, "select count(*) from features where work_key like $1", fmt.Sprintf("crowd%d-%%", bad))
		if processed != crowd-bad || written != crowd-bad {
			t.Errorf("%d bad: %d processed, %d written", bad, processed, written)
		}
	}
}

// TestACrowdSharesCommits counts the transactions that wrote what many handed over at
// once, one event each.
func TestACrowdSharesCommits(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	const commits = 10 // two runners that fill up, and stragglers
	held(t, s, "events", func(n int) {
		event := dlq.NewEvent{WorkKey: fmt.Sprintf("crowd-%03d", n), Source: "test", Body: []byte("{}"), MediaType: "application/geo+json"}
		if receipts, err := s.Accept(t.Context(), []dlq.NewEvent{event}); err != nil || len(receipts) != 1 || receipts[0].Duplicate {
			t.Errorf("%d: %v, %v", n, receipts, err)
		}
	})
	const written = "select count(distinct xmin::text) from events"
	if n := s.number(t, "select count(*) from events e join river_job j on j.id = e.job_id and j.xmin = e.xmin"); n != crowd {
		t.Errorf("%d events with jobs of their own commits", n)
	}
	if n := s.number(t, written); n > commits {
		t.Errorf("accepted in %d commits", n)
	}
	events := acceptCrowd(t, s, "ending")
	held(t, s, "features", func(n int) {
		if err := s.Complete(t.Context(), events[n], 1, &store.Feature{Properties: []byte("{}")}); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	})
	if n := s.number(t, written+" where state = 'processed'"); n > commits || s.number(t, "select count(*) from features") != crowd {
		t.Errorf("ended in %d commits", n)
	}
}

func TestAGeometryThatIsRefusedIsRefusedAlone(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	good, err := geo.EncodeWKB(orb.Point{500_000, 5_800_000})
	if err != nil {
		t.Fatal(err)
	}
	bow, err := geo.EncodeWKB(orb.Polygon{{{0, 0}, {1, 1}, {1, 0}, {0, 1}, {0, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	square, err := geo.EncodeWKB(orb.Polygon{{{0, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	unreadable := []byte{1, 3, 0, 0, 0, 9}
	_, alone := s.CheckTopology(t.Context(), unreadable)
	if !errors.Is(alone, store.ErrGeometry) {
		t.Fatal(alone)
	}
	for _, bad := range []int{1, 5, 25} {
		held(t, s, "spatial_ref_sys", func(n int) {
			srid := 25832
			if poisoned(n, bad) {
				srid = 45_678
			}
			there, _, err := s.Transform(t.Context(), good, srid)
			if poisoned(n, bad) != errors.Is(err, store.ErrUnknownSRID) || (err == nil) != (there != nil) {
				t.Errorf("%d bad: %v", bad, err)
			}
			wkb, crossed := square, n%2 == 0
			if crossed {
				wkb = bow
			}
			if poisoned(n, bad) {
				wkb = unreadable
			}
			flaw, err := s.CheckTopology(t.Context(), wkb)
			switch {
			case poisoned(n, bad) && (err == nil || err.Error() != alone.Error()):
				t.Errorf("%d bad: %v, not %v", bad, err, alone)
			case !poisoned(n, bad) && (err != nil || crossed != (flaw != nil)):
				t.Errorf("%d bad: %v, %v", bad, flaw, err)
			}
		})
	}
}

func TestALetterThatCanNotBeWrittenKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx := t.Context()
	for _, bad := range []int{0, 1, 5, 25} {
		prefix := fmt.Sprintf("ended%d", bad)
		acceptCrowd(t, s, prefix)
		s.exec(t, fmt.Sprintf(`alter table dead_letters add constraint no_%s check (work_key not like '%s-%%' or error <> 'poison')`, prefix, prefix))
		end := func(n string) {
			s.exec(t, `update river_job j set state = 'cancelled', finalized_at = now() - interval '1 minute', metadata = jsonb_build_object('output',
				jsonb_build_object('stage', 'parse', 'class', 'unknown', 'error', e.error))
				from (select job_id, case when `+n+` then 'poison' else 'as usual' end as error
					from (select job_id, substring(work_key from '...$')::int as n from events where work_key like $1 || '-%') e) e
				where j.id = e.job_id`, prefix)
		}
		which := "false"
		if bad > 0 {
			which = fmt.Sprintf("n %% %d = 3", crowd/bad)
		}
		end(which)
		if n := s.number(t, "select count(*) from dead_letters where work_key like $1 || '-%' and error = 'as usual' and stage = 'parse'", prefix); n != crowd-bad {
			t.Errorf("%d bad: %d letters", bad, n)
		}
		if n := s.number(t, "select count(*) from events where work_key like $1 || '-%' and state = 'accepted'", prefix); n != bad {
			t.Errorf("%d bad: %d in flight", bad, n)
		}
		s.exec(t, "update events set received_at = now() - interval '1 hour' where state = 'accepted'")
		if made, next, err := s.Sweep(ctx, 0, 0); made != 0 || next != 0 || strings.Count(fmt.Sprint(err), "capture job") != bad {
			t.Errorf("%d bad: swept %d, %d, %v", bad, made, next, err)
		}
		s.exec(t, "alter table dead_letters drop constraint no_"+prefix)
		for _, want := range []int{bad, 0} {
			if made, _, err := s.Sweep(ctx, 0, 0); made != want || err != nil {
				t.Errorf("%d bad: swept %d, %v", bad, made, err)
			}
		}
	}
	if check, err := s.CheckLedger(ctx); err != nil || check.Mismatched != 0 {
		t.Errorf("the ledger: %+v, %v", check, err)
	}
}

func (s *storm) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *storm) number(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

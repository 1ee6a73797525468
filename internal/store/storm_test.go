package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// jobsOf makes events in flight with their jobs, which no worker knows of.
func jobsOf(t *testing.T, pool *pgxpool.Pool, run string, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		with e as (
			insert into events (work_key, source, body, size, sha256, media_type, job_id)
			select $1 || i, 'storm ' || i % 3, '{}', 2, sha256('{}'), 'application/geo+json', nextval('river_job_id_seq')
			from generate_series(1, $2::int) i returning id, job_id)
		insert into river_job (id, args, kind, max_attempts, state)
		select job_id, jsonb_build_object('event_id', id), 'process_event', 3, 'available' from e`, run, n)
	if err != nil {
		t.Fatal(err)
	}
}

func wantRightCounts(t *testing.T, s *store.Store) int64 {
	t.Helper()
	found, err := s.VerifyCounts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if found.Wrong != 0 {
		t.Fatalf("%d kinds of letters are counted wrongly, of %d letters", found.Wrong, found.Letters)
	}
	return found.Letters
}

// wantPageAsCounted holds a page with all letters of a filter against their count.
func wantPageAsCounted(t *testing.T, s *store.Store, f dlq.Filter) {
	t.Helper()
	page, n, err := s.CountedLetters(t.Context(), f, 5000)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(page.Letters)) != n {
		t.Errorf("%s: %d letters, counted as %d", f.Values().Encode(), len(page.Letters), n)
	}
}

// TestCountsAreRightThroughAStorm captures, redrives, quarantines and deletes from
// several connections while two processes fold; in every snapshot meanwhile the
// counts are those of the letters.
func TestCountsAreRightThroughAStorm(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store.New(pool, nil, store.Rules{RedriveCap: 3, MaxJobAttempts: 3, InlineMax: 1 << 20})
	const jobs = 4000
	jobsOf(t, pool, "storm-", jobs)
	var storm errgroup.Group
	for part := range 4 {
		storm.Go(func() error {
			for from := part; from < jobs; from += 4 * 50 {
				_, err := pool.Exec(context.Background(), `update river_job set state = 'discarded', finalized_at = now(),
					metadata = jsonb_build_object('output', jsonb_build_object('stage', 'crs', 'class', 'crs_mismatch', 'fingerprint', 'f' || id % 7,
						'error', 'e', 'anchor', jsonb_build_array(id % 360 - 180, id % 80),
						'wkb', encode(ST_AsBinary(ST_SetSRID(ST_MakePoint(id % 360 - 180, id % 80), 4326)), 'base64')))
					where id in (select job_id from events where work_key like 'storm-%' and id % 4 = $1 and state in ('accepted', 'retrying') limit 50)`, part)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	for part := range 2 {
		storm.Go(func() error {
			for range 60 {
				rows, _ := pool.Query(context.Background(), "select id from dead_letters where status = 'pending' and id % 2 = $1 order by random() limit 20", part)
				var ids []int64
				var id int64
				for rows.Next() {
					if err := rows.Scan(&id); err != nil {
						return err
					}
					ids = append(ids, id)
				}
				if rows.Err() != nil {
					return rows.Err()
				}
				if len(ids) == 0 {
					continue
				}
				if _, err := s.Redrive(context.Background(), ids, "storm", ""); err != nil {
					return err
				}
				if err := s.Transition(context.Background(), ids[0], dlq.ActionQuarantine, "storm", ""); err == nil {
					return fmt.Errorf("letter %d was redriven and quarantined", ids[0])
				}
				if _, err := pool.Exec(context.Background(), "delete from dead_letters where id = $1", ids[0]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	calm := make(chan struct{})
	var folds errgroup.Group
	for range 2 {
		other := store.New(pool, nil, store.Rules{})
		folds.Go(func() error {
			for {
				if _, err := other.Fold(context.Background()); err != nil {
					return err
				}
				select {
				case <-calm:
					return nil
				case <-time.After(time.Duration(rand.IntN(100)) * time.Millisecond):
				}
			}
		})
	}
	checks, since := 0, time.Now().Add(-90*time.Minute-time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- storm.Wait() }()
	for running := true; running; checks++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		wantRightCounts(t, s)
		wantPageAsCounted(t, s, dlq.Filter{})
		wantPageAsCounted(t, s, dlq.Filter{Statuses: dlq.Statuses, Since: &since, Classes: []dlq.Class{dlq.ClassCRSMismatch}})
		wantPageAsCounted(t, s, dlq.Filter{BBox: &dlq.Box{West: -180, South: 0, East: 0, North: 90}})
	}
	close(calm)
	if err := folds.Wait(); err != nil {
		t.Fatal(err)
	}
	letters := wantRightCounts(t, s)
	stats, err := s.Stats(t.Context(), dlq.Filter{Statuses: dlq.Statuses})
	if err != nil {
		t.Fatal(err)
	}
	if letters == 0 || stats.Total != letters {
		t.Errorf("%d letters, stats say %d", letters, stats.Total)
	}
	t.Logf("%d letters, right in %d snapshots", letters, checks)
}

func TestCountsThatWentWrongAreFoundAndMadeAnewWhileLettersAreWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store.New(pool, nil, store.Rules{})
	r := rand.New(rand.NewPCG(7, 8))
	randomLetters(t, pool, r, 40_000)
	fold(t, s)
	for _, harm := range []string{
		"delete from letter_blocks where id = (select max(id) from letter_blocks where kind = 0)",
		"delete from letter_blocks where id = (select max(id) from letter_blocks where kind = 1)",
		"delete from letter_blocks where id = (select max(id) from letter_blocks where kind = 2)",
		"alter table dead_letters disable trigger geodlq_count; update dead_letters set anchor = 'SRID=4326;POINT(1 1)' where id = (select max(id) from dead_letters where anchor is not null); alter table dead_letters enable trigger geodlq_count",
		"insert into letter_deltas (facet, cell, failed_at, attempts) select facet, cell, failed_at, attempts from dead_letters limit 1",
	} {
		wantRightCounts(t, s)
		if _, err := pool.Exec(t.Context(), harm); err != nil {
			t.Fatal(err)
		}
		found, err := s.VerifyCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found.Wrong == 0 {
			t.Errorf("not found: %s", harm)
		}
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
				if _, err := pool.Exec(context.Background(), `update dead_letters set status = case status when 'pending' then 'quarantined' else 'pending' end
					where id in (select id from dead_letters order by random() limit 5)`); err != nil {
					stopped <- err
					return
				}
			}
		}()
		n, err := s.RebuildCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		close(stop)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if n != wantRightCounts(t, s) {
			t.Errorf("rebuilt of %d letters", n)
		}
	}
	if _, err := pool.Exec(t.Context(), "truncate dead_letters"); err != nil {
		t.Fatal(err)
	}
	if n := wantRightCounts(t, s); n != 0 {
		t.Errorf("%d letters", n)
	}
}

package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

// ledgerWays are ways to count, the one in use second: what comes in by statement,
// what changes by row.
var ledgerWays = []struct{ name, ddl string }{
	{"none", "drop trigger geodlq_ledger_in on events; drop trigger geodlq_ledger_move on events"},
	{"in use", ""},
	{"by row", `
		create function ledger_in_row() returns trigger language plpgsql as $$
		begin
			insert into ledger_deltas (source, day, received, in_flight) values (new.source, (new.received_at at time zone 'UTC')::date, 1, 1);
			return null;
		end $$;
		drop trigger geodlq_ledger_in on events;
		create trigger ledger_in after insert on events for each row execute function ledger_in_row()`},
	{"by statement", `
		create function ledger_move_all() returns trigger language plpgsql as $$
		begin
			insert into ledger_deltas (source, day, processed, dead, in_flight)
			select source, day, sum(p), sum(d), sum(f) from (
				select source, (received_at at time zone 'UTC')::date as day, (state = 'processed')::int as p,
					(state = 'dead')::int as d, (state in ('accepted', 'retrying'))::int as f from is_
				union all
				select source, (received_at at time zone 'UTC')::date, -(state = 'processed')::int,
					-(state = 'dead')::int, -(state in ('accepted', 'retrying'))::int from was) c
			group by 1, 2 having sum(p) <> 0 or sum(d) <> 0 or sum(f) <> 0;
			return null;
		end $$;
		drop trigger geodlq_ledger_move on events;
		create trigger ledger_move after update on events referencing old table as was new table as is_ for each statement execute function ledger_move_all()`},
}

// BenchmarkLedger is what the ledger costs the door and the workers, beside the
// same without it.
func BenchmarkLedger(b *testing.B) {
	ctx := context.Background()
	pools := make([]*pgxpool.Pool, len(ledgerWays))
	for i, way := range ledgerWays {
		pools[i] = pgtest.Pool(b)
		if _, err := pools[i].Exec(ctx, way.ddl); err != nil {
			b.Fatal(way.name, err)
		}
	}
	rules := store.Rules{DedupeWindow: time.Hour, MaxJobAttempts: 30, InlineMax: 1 << 20}
	for _, c := range []struct {
		name    string
		n, size int
	}{{"accept 1", 1, 300}, {"accept 1,000", 1000, 300}, {"accept 1,000 of 10 kB", 1000, 10_000}} {
		compare(b, c.name, pools, func(pool *pgxpool.Pool) func() error {
			batch := newEvents(c.n, c.size)
			return func() error {
				_, err := store.New(pool, nil, rules).Accept(ctx, batch)
				return err
			}
		})
	}
	for _, pool := range pools {
		for range 5 {
			if _, err := store.New(pool, nil, rules).Accept(ctx, newEvents(1000, 300)); err != nil {
				b.Fatal(err)
			}
		}
	}
	compare(b, "complete 1", pools, func(pool *pgxpool.Pool) func() error {
		e := &dlq.Event{}
		if err := pool.QueryRow(ctx, "select id, job_id from events where state = 'accepted' order by id limit 1").Scan(&e.ID, &e.JobID); err != nil {
			b.Fatal(err)
		}
		return func() error { return store.New(pool, nil, rules).Complete(ctx, e, 1, nil) }
	})
	compare(b, "update 1,000", pools, func(pool *pgxpool.Pool) func() error {
		return func() error {
			_, err := pool.Exec(ctx, `update events set state = case state when 'dead' then 'processed' else 'dead' end
				where id in (select id from events order by id desc limit 1000)`)
			return err
		}
	})
}

var eventSerial int

func newEvents(n, size int) []dlq.NewEvent {
	out := make([]dlq.NewEvent, n)
	for i := range out {
		eventSerial++
		out[i] = dlq.NewEvent{WorkKey: fmt.Sprintf("bench-%d", eventSerial), Source: "bench", Body: make([]byte, size), MediaType: "application/geo+json"}
	}
	return out
}

// compare takes the ways in turn, so that the noise of the machine meets all alike,
// and prints their medians.
func compare(b *testing.B, what string, pools []*pgxpool.Pool, prepare func(*pgxpool.Pool) func() error) {
	b.Run(what, func(b *testing.B) {
		took := make([][]time.Duration, len(pools))
		for b.Loop() {
			for i := range pools {
				act := prepare(pools[i])
				start := time.Now()
				if err := act(); err != nil {
					b.Fatal(err)
				}
				took[i] = append(took[i], time.Since(start))
			}
		}
		var line strings.Builder
		for i, way := range ledgerWays {
			slices.Sort(took[i])
			median := took[i][len(took[i])/2]
			fmt.Fprintf(&line, "  %s %v", way.name, median.Round(time.Microsecond))
			if i > 0 {
				fmt.Fprintf(&line, " (%.2f)", float64(median)/float64(took[0][len(took[0])/2]))
			}
		}
		b.Log(line.String())
	})
}

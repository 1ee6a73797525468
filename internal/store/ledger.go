package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// foldBatch bounds how many deltas one statement folds.
const foldBatch = 50_000

// foldSQL takes deltas by deleting them: whatever is committed meanwhile is not
// seen, and stays for the next time.
const foldSQL = `
with gone as (
	delete from ledger_deltas where ctid = any(array(select ctid from ledger_deltas limit $1)) returning *
), summed as (
	select day, source, sum(received) as received, sum(processed) as processed, sum(dead) as dead, sum(in_flight) as in_flight,
		sum(duplicates) as duplicates, sum(forgotten) as forgotten, sum(reports) as reports, sum(reports_repeated) as reports_repeated
	from gone group by 1, 2
), folded as (
	insert into ledger as l (day, source, received, processed, dead, in_flight, duplicates, forgotten, reports, reports_repeated)
	select * from summed
	on conflict (day, source) do update set
		received = l.received + excluded.received, processed = l.processed + excluded.processed,
		dead = l.dead + excluded.dead, in_flight = l.in_flight + excluded.in_flight,
		duplicates = l.duplicates + excluded.duplicates, forgotten = l.forgotten + excluded.forgotten,
		reports = l.reports + excluded.reports, reports_repeated = l.reports_repeated + excluded.reports_repeated
)
select count(*) from gone`

// FoldLedger folds the deltas that stand into the ledger, and returns how many;
// none while another process is at it.
func (s *Store) FoldLedger(ctx context.Context) (int64, error) {
	var total int64
	for {
		var folded int64
		err := s.inTx(ctx, func(tx pgx.Tx) error {
			var mine bool
			if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtext('geodlq ledger'))").Scan(&mine); err != nil || !mine {
				return err
			}
			return tx.QueryRow(ctx, foldSQL, foldBatch).Scan(&folded)
		})
		if err != nil {
			return total, fmt.Errorf("fold the ledger: %w", err)
		}
		total += folded
		if folded < foldBatch {
			return total, nil
		}
	}
}

// countDuplicates counts in the ledger what was received again, by source, on the
// day it came.
func countDuplicates(ctx context.Context, tx pgx.Tx, again []eventRow) error {
	if len(again) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		insert into ledger_deltas (source, day, received, duplicates)
		select source, (coalesce(received_at, now()) at time zone 'UTC')::date, count(*), count(*)
		from unnest($1::text[], $2::timestamptz[]) as t (source, received_at) group by 1, 2`,
		column(again, func(r *eventRow) string { return r.Source }),
		column(again, func(r *eventRow) *time.Time { return r.ReceivedAt }))
	if err != nil {
		return fmt.Errorf("count duplicates: %w", err)
	}
	return nil
}

// ledgerReport counts a report of a geotask in the ledger; repeated: its key was
// counted before.
func ledgerReport(ctx context.Context, tx pgx.Tx, r *dlq.Report, repeated bool) error {
	at := r.ReceivedAt
	if at.IsZero() {
		at = time.Now()
	}
	_, err := tx.Exec(ctx, `insert into ledger_deltas (source, day, reports, reports_repeated)
		values ($1, $2, (not $3::boolean)::int, $3::boolean::int)`, r.Source, at.UTC(), repeated)
	if err != nil {
		return fmt.Errorf("count the report: %w", err)
	}
	return nil
}

// AddRefusals adds to what the ledger has of refusals. They come in one order of
// day, source and status from every process, so that none waits for another in a
// circle.
func (s *Store) AddRefusals(ctx context.Context, refusals []dlq.LedgerRefusal) error {
	_, err := s.pool.Exec(ctx, `
		insert into ledger_refusals as l (day, source, status, n)
		select day, source, status, sum(n) from unnest($1::date[], $2::text[], $3::int[], $4::bigint[]) as t (day, source, status, n)
		group by 1, 2, 3 order by day, source collate "C", status
		on conflict (day, source, status) do update set n = l.n + excluded.n`,
		column(refusals, func(r *dlq.LedgerRefusal) time.Time { return r.Day }),
		column(refusals, func(r *dlq.LedgerRefusal) string { return r.Source }),
		column(refusals, func(r *dlq.LedgerRefusal) int { return r.Status }),
		column(refusals, func(r *dlq.LedgerRefusal) int64 { return r.Count }))
	if err != nil {
		return fmt.Errorf("add refusals: %w", err)
	}
	return nil
}

// ledgerSQL are the rows of a query, folded or not, with what was refused beside
// them.
const ledgerSQL = `
with counted as (
	select day, source, sum(received) as received, sum(processed) as processed, sum(dead) as dead, sum(in_flight) as in_flight,
		sum(duplicates) as duplicates, sum(reports) as reports, sum(reports_repeated) as reports_repeated
	from (
		select day, source, received, processed, dead, in_flight, duplicates, reports, reports_repeated from ledger
		union all
		select day, source, received, processed, dead, in_flight, duplicates, reports, reports_repeated from ledger_deltas
	) l where day >= @since and day < @until and (@sources::text[] is null or source = any(@sources))
	group by 1, 2
), refused as (
	select day, source, jsonb_object_agg(status, n) as refused from ledger_refusals
	where day >= @since and day < @until and (@sources::text[] is null or source = any(@sources))
	group by 1, 2
), row as (
	select day, source, coalesce(received, 0)::bigint as received, coalesce(processed, 0)::bigint as processed,
		coalesce(dead, 0)::bigint as dead, coalesce(in_flight, 0)::bigint as in_flight, coalesce(duplicates, 0)::bigint as duplicates,
		coalesce(reports, 0)::bigint as reports, coalesce(reports_repeated, 0)::bigint as reports_repeated,
		coalesce(refused, '{}') as refused
	from counted full join refused using (day, source)
)`

const ledgerTotalsSQL = ledgerSQL + `
select count(*) as rows, coalesce(sum(received), 0)::bigint as received, coalesce(sum(processed), 0)::bigint as processed,
	coalesce(sum(dead), 0)::bigint as dead, coalesce(sum(in_flight), 0)::bigint as in_flight, coalesce(sum(duplicates), 0)::bigint as duplicates,
	coalesce(sum(reports), 0)::bigint as reports, coalesce(sum(reports_repeated), 0)::bigint as reports_repeated,
	coalesce((select jsonb_object_agg(status, n) from (
		select key as status, sum(value::bigint) as n from row, jsonb_each_text(refused) group by 1) s), '{}') as refused
from row`

// ledgerRow is a row of ledgerSQL, or of ledgerTotalsSQL.
type ledgerRow struct {
	Day             time.Time
	Source          string
	Received        int64
	Processed       int64
	Dead            int64
	InFlight        int64
	Duplicates      int64
	Reports         int64
	ReportsRepeated int64
	Refused         map[int]int64
	Rows            int64
}

func (r *ledgerRow) day() dlq.LedgerDay {
	return dlq.LedgerDay{Day: r.Day, Source: r.Source, Refused: r.Refused, LedgerCounts: dlq.LedgerCounts{
		Received: r.Received, Processed: r.Processed, Dead: r.Dead, InFlight: r.InFlight, Duplicates: r.Duplicates,
		Reports: r.Reports, ReportsRepeated: r.ReportsRepeated,
	}}
}

// maxSources bounds the sources that an answer names for the next question.
const maxSources = 200

// Ledger answers a query in one snapshot, with at most limit rows.
func (s *Store) Ledger(ctx context.Context, q dlq.LedgerQuery, limit int) (*dlq.Ledger, error) {
	l := &dlq.Ledger{}
	args := pgx.NamedArgs{"since": q.Since, "until": q.Until, "sources": q.Sources, "limit": limit}
	err := pgx.BeginTxFunc(ctx, s.db(ctx), snapshotTx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, ledgerSQL+` select * from row order by day desc, source collate "C" limit @limit`, args)
		found, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[ledgerRow])
		if err != nil {
			return err
		}
		for i := range found {
			l.Days = append(l.Days, found[i].day())
		}
		rows, _ = tx.Query(ctx, ledgerTotalsSQL, args)
		totals, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[ledgerRow])
		if err != nil {
			return err
		}
		l.Rows, l.Totals = totals.Rows, totals.day()
		rows, _ = tx.Query(ctx, `select distinct source from (
				select source, day from ledger union all select source, day from ledger_deltas union all select source, day from ledger_refusals) l
			where day >= $1 and day < $2 order by 1 limit $3`, q.Since, q.Until, maxSources)
		if l.Sources, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		l.Check, err = lastCheck(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return l, nil
}

func lastCheck(ctx context.Context, tx pgx.Tx) (*dlq.LedgerCheck, error) {
	check, err := scanCheck(tx.QueryRow(ctx, "select checked_at, mismatched, mismatches from ledger_checks"))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return check, err
}

func scanCheck(row pgx.Row) (*dlq.LedgerCheck, error) {
	check := &dlq.LedgerCheck{}
	var raw []byte
	if err := row.Scan(&check.CheckedAt, &check.Mismatched, &raw); err != nil {
		return nil, err
	}
	var found []struct {
		Day, Source, Column string
		Ledger, Tables      int64
	}
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, err
	}
	for _, m := range found {
		day, err := time.Parse(time.DateOnly, m.Day)
		if err != nil {
			return nil, err
		}
		check.Mismatches = append(check.Mismatches, dlq.LedgerMismatch{
			Day: day, Source: m.Source, Column: m.Column, Ledger: m.Ledger, Tables: m.Tables,
		})
	}
	return check, nil
}

// differencesSQL holds the ledger against the events, in one snapshot. Neither
// duplicates nor forgotten events have a row left: the ledger's own figures stand
// in for them.
const differencesSQL = `
with kept as (
	select day, source, sum(received) as received, sum(processed) as processed, sum(dead) as dead, sum(in_flight) as in_flight,
		sum(duplicates) as duplicates, sum(forgotten) as forgotten
	from (
		select day, source, received, processed, dead, in_flight, duplicates, forgotten from ledger
		union all
		select day, source, received, processed, dead, in_flight, duplicates, forgotten from ledger_deltas
	) l group by 1, 2
), standing as (
	select (received_at at time zone 'UTC')::date as day, source, count(*) as units,
		count(*) filter (where state = 'processed') as processed, count(*) filter (where state = 'dead') as dead,
		count(*) filter (where state in ('accepted', 'retrying')) as in_flight
	from events where state <> 'split' group by 1, 2
), difference as (
	select day, source, c.ordinal, c.name, c.ledger::bigint, c.tables::bigint
	from kept k full join standing s using (day, source) cross join lateral (values
		(1, 'received', coalesce(k.received, 0), coalesce(s.units, 0) + coalesce(k.forgotten, 0) + coalesce(k.duplicates, 0)),
		(2, 'processed', coalesce(k.processed, 0), coalesce(s.processed, 0) + coalesce(k.forgotten, 0)),
		(3, 'dead', coalesce(k.dead, 0), coalesce(s.dead, 0)),
		(4, 'in_flight', coalesce(k.in_flight, 0), coalesce(s.in_flight, 0))) c (ordinal, name, ledger, tables)
	where c.ledger <> c.tables
)`

const checkSQL = differencesSQL + `, found as (
	select statement_timestamp() as checked_at, (select count(*) from difference) as mismatched, coalesce((
		select jsonb_agg(jsonb_build_object('day', day, 'source', source, 'column', name, 'ledger', ledger, 'tables', tables) order by day desc, source, ordinal)
		from (select * from difference order by day desc, source, ordinal limit $1) d), '[]') as mismatches
), noted as (
	insert into ledger_checks as l (checked_at, mismatched, mismatches) select * from found
	on conflict (one) do update set checked_at = excluded.checked_at, mismatched = excluded.mismatched, mismatches = excluded.mismatches
	where l.checked_at < excluded.checked_at
)
select * from found`

// CheckLedger compares the ledger with the events, exactly, whatever is written
// meanwhile: each change and its delta are committed together, and one statement
// reads both. The result is kept for who reads the ledger.
func (s *Store) CheckLedger(ctx context.Context) (*dlq.LedgerCheck, error) {
	check, err := scanCheck(s.pool.QueryRow(ctx, checkSQL, dlq.MaxMismatches))
	if err != nil {
		return nil, fmt.Errorf("check the ledger: %w", err)
	}
	return check, nil
}

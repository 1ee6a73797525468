package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Sweep looks at sweepPages times sweepPage events: a full queue is gone through in
// turns.
const (
	sweepPage  = 5000
	sweepPages = 10
)

// Sweep captures what the trigger missed: events in flight whose job ended or is
// gone. It begins behind the event from and returns how many letters it made, and
// where to go on; 0 after the last. age spares what is only just being written. One
// event that can't be captured does not keep the others waiting.
func (s *Store) Sweep(ctx context.Context, age time.Duration, from int64) (made int, next int64, err error) {
	var failures []error
	for range sweepPages {
		missed, last, err := s.missed(ctx, age, from)
		if err != nil {
			return made, from, errors.Join(append(failures, fmt.Errorf("sweep: %w", err))...)
		}
		for _, jobID := range missed {
			letter, err := s.captureMissed(ctx, jobID)
			if err != nil {
				failures = append(failures, fmt.Errorf("capture job %d: %w", jobID, err))
			}
			if letter {
				made++
			}
		}
		if from = last; from == 0 {
			break
		}
	}
	return made, from, errors.Join(failures...)
}

// missed looks at a page of the events in flight behind from: the jobs that did not
// end their events, and the last event that it looked at; 0 after the last page.
func (s *Store) missed(ctx context.Context, age time.Duration, from int64) (jobs []int64, last int64, err error) {
	var seen int
	err = s.pool.QueryRow(ctx, `
		with page as materialized (
			select id, job_id, received_at from events
			where finished_at is null and id > $2 order by id limit $3
		), missed as (
			select p.job_id from page p left join river_job j on j.id = p.job_id
			where p.received_at < now() - $1::interval
				and (j.id is null or (j.state in ('discarded', 'cancelled', 'completed') and j.finalized_at < now() - $1::interval))
		)
		select (select count(*) from page), (select coalesce(max(id), 0) from page), (select coalesce(array_agg(job_id), '{}') from missed)`,
		age, from, sweepPage).Scan(&seen, &last, &jobs)
	if seen < sweepPage {
		last = 0
	}
	return jobs, last, err
}

func (s *Store) captureMissed(ctx context.Context, jobID int64) (letter bool, err error) {
	err = s.pool.QueryRow(ctx, `
		select geodlq_capture($1, j.metadata->'output', j.metadata->'redrive',
			coalesce(j.errors[cardinality(j.errors)]->>'error', 'its job ended as ' || j.state || ' without an error', 'its job is gone'),
			coalesce(j.finalized_at, now())) is not null
		from (select $1::bigint as id) e left join river_job j on j.id = e.id`, jobID).Scan(&letter)
	return letter, err
}

// forgetBatch bounds one statement of Forget.
const forgetBatch = 5000

// forgetSQL deletes events and keeps count of them, so that the ledger's sums
// stay: nobody else's deletion is counted, and the check finds it.
const forgetSQL = `
with gone as (
	delete from events where id in (
		select e.id from events e
		where e.finished_at < now() - $1::interval and e.state in ('processed', 'split')
			and not exists (select from dead_letters d where d.event_id = e.id)
			and not exists (select from events c where c.parent_id = e.id)
		limit $2)
	returning source, received_at, state, blob
), counted as (
	insert into ledger_deltas (source, day, forgotten)
	select source, (received_at at time zone 'UTC')::date, count(*) from gone where state = 'processed' group by 1, 2
)
select count(*), array_agg(blob) filter (where blob is not null) from gone`

// Forget lets go of what need not be kept: keys of processed events, and of
// collections whose features are forgotten, retention after their end; keys of
// reports retention after they came; geometries that no capture took over. It
// returns how many events went.
func (s *Store) Forget(ctx context.Context, retention time.Duration) (int64, error) {
	var total int64
	for {
		var blobs []*string
		var gone int64
		err := s.pool.QueryRow(ctx, forgetSQL, retention, forgetBatch).Scan(&gone, &blobs)
		if err != nil {
			return total, fmt.Errorf("forget events: %w", err)
		}
		s.release(ctx, blobs)
		total += gone
		if gone < forgetBatch {
			break
		}
	}
	if _, err := s.pool.Exec(ctx, "delete from reports where received_at < now() - $1::interval", retention); err != nil {
		return total, fmt.Errorf("forget reports: %w", err)
	}
	if err := s.forgetPreviews(ctx); err != nil {
		return total, err
	}
	_, err := s.pool.Exec(ctx, `delete from failure_geometries f
		where not exists (select from river_job j where j.id = f.job_id and j.finalized_at is null)`)
	if err != nil {
		return total, fmt.Errorf("forget geometries: %w", err)
	}
	return total, nil
}

// forgetPreviews drops orders that were never started, long after they could be.
func (s *Store) forgetPreviews(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		with gone as (
			delete from redrives where started_at is null and created_at < now() - interval '1 day' returning id
		)
		delete from redrive_letters r using gone where r.redrive_id = gone.id`)
	if err != nil {
		return fmt.Errorf("forget previews: %w", err)
	}
	return nil
}

// ReleaseBodies empties the bodies of collections whose features are all
// processed: key and hash stay.
func (s *Store) ReleaseBodies(ctx context.Context) (int64, error) {
	rows, _ := s.pool.Query(ctx, `
		with done as (
			select p.id, p.blob from events p
			where p.state = 'split' and (p.body is not null or p.blob is not null)
				and not exists (select from events c where c.parent_id = p.id and c.state <> 'processed')
				and not exists (select from events c join dead_letters d on d.event_id = c.id where c.parent_id = p.id)
			for update
		)
		update events p set body = null, blob = null from done where p.id = done.id returning done.blob`)
	blobs, err := pgx.CollectRows(rows, pgx.RowTo[*string])
	if err != nil {
		return 0, fmt.Errorf("release bodies: %w", err)
	}
	s.release(ctx, blobs)
	return int64(len(blobs)), nil
}

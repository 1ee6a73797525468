package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// LargeBody is from how many bytes on a reader of EventBody should make room first;
// Event leaves such a body out.
const LargeBody = 256 << 10

// Event is the event as its worker needs it, with its bytes unless they are large or
// in the bucket, where EventBody has them; ErrNotFound.
func (s *Store) Event(ctx context.Context, id int64) (*dlq.Event, error) {
	rows, _ := s.db(ctx).Query(ctx, `select id, work_key, source, task, subject, version, parent_id, ordinal, size,
			case when size < $2 then geodlq_body(e) end as body, sha256, media_type, headers, claimed_crs, inherited_crs, state, job_id, received_at
		from events e where id = $1`, id, LargeBody)
	event, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[dlq.Event])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("event %d: %w", id, dlq.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", id, err)
	}
	return event, nil
}

// EventBody is the bytes of an event: ErrNotFound where they are not kept,
// payload.ErrMissing or payload.ErrUnavailable.
func (s *Store) EventBody(ctx context.Context, id int64) ([]byte, error) {
	rows, _ := s.db(ctx).Query(ctx, "select "+bytesOf+" from "+eventWithParent+" where e.id = $1", id)
	at, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[stored])
	if errors.Is(err, pgx.ErrNoRows) {
		err = dlq.ErrNotFound
	}
	var body []byte
	if err == nil {
		body, err = s.bytesAt(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("body of event %d: %w", id, err)
	}
	return body, nil
}

// EventStatus tells how the event of a work key fares; ErrNotFound.
func (s *Store) EventStatus(ctx context.Context, workKey string) (*dlq.EventStatus, error) {
	rows, _ := s.pool.Query(ctx, `
		select e.work_key, e.job_id, e.state, coalesce(l.attempts, 0) as attempts,
			case when e.state in ('accepted', 'retrying') then coalesce((j.metadata->>'tries')::int, 0) else e.tries end as tries,
			l.id as letter_id, p.work_key as parent,
			case when e.state = 'split' then coalesce((select array_agg(c.work_key order by c.ordinal) from events c where c.parent_id = e.id), '{}')
			     else '{}' end as children,
			e.received_at, e.finished_at
		from events e
		left join dead_letters l on l.event_id = e.id
		left join events p on p.id = e.parent_id
		left join river_job j on j.id = e.job_id
		where e.work_key = $1`, workKey)
	status, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[dlq.EventStatus])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("event: %w", dlq.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("event status: %w", err)
	}
	return status, nil
}

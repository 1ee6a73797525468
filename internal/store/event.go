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
const LargeBody = 16 << 10

// Event is the event as its worker needs it, with its bytes unless they are large or
// in the bucket, where EventBody has them; ErrNotFound. Those who ask at once share a
// round trip.
func (s *Store) Event(ctx context.Context, id int64) (*dlq.Event, error) {
	event, err := s.loading.Do(ctx, id)
	return foundEvent(id, event, err)
}

// eventAt is Event where a letter is read.
func (s *Store) eventAt(ctx context.Context, id int64) (*dlq.Event, error) {
	events, err := readEvents(ctx, s.db(ctx), []int64{id})
	if err != nil {
		return foundEvent(id, nil, err)
	}
	return foundEvent(id, events[0], nil)
}

// foundEvent says of which event something went wrong, or that there is none.
func foundEvent(id int64, event *dlq.Event, err error) (*dlq.Event, error) {
	if err == nil && event == nil {
		err = dlq.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", id, err)
	}
	return event, nil
}

func (s *Store) loadAll(ctx context.Context, ids []int64) ([]*dlq.Event, error) {
	return readEvents(ctx, s.pool, ids)
}

// readEvents reads events; nil for one that is not there.
func readEvents(ctx context.Context, db queryer, ids []int64) ([]*dlq.Event, error) {
	rows, _ := db.Query(ctx, `select id, work_key, source, task, subject, version, parent_id, ordinal, size,
			case when size < $2 then case when body is not null then body else geodlq_body(e) end end as body,
			sha256, media_type, headers, claimed_crs, inherited_crs, state, job_id, received_at
		from events e where id = any($1)`, ids, LargeBody)
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[dlq.Event])
	if err != nil {
		return nil, err
	}
	byID := make(map[int64]*dlq.Event, len(found))
	for _, e := range found {
		byID[e.ID] = e
	}
	out := make([]*dlq.Event, len(ids))
	for i, id := range ids {
		if e := byID[id]; e != nil {
			copied := *e // two jobs of one event don't share it
			out[i] = &copied
		}
	}
	return out, nil
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

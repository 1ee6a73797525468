package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// Accept stores events and enqueues a job for each. The receipts stand in the order of
// the events. A key that is taken makes a duplicate, or a conflict where its body is
// another; neither stops the rest. Those who accept at once share a commit.
//
// Large bodies are in the bucket before; one that is not taken is released. After an
// error some may have been, so they stay, for the collector.
func (s *Store) Accept(ctx context.Context, events []dlq.NewEvent) ([]dlq.Receipt, error) {
	blobs, err := s.putLarge(ctx, column(events, func(e *dlq.NewEvent) []byte { return e.Body }))
	if err != nil {
		return nil, fmt.Errorf("accept %d events: %w", len(events), err)
	}
	group := make([]arrival, len(events))
	for i := range events {
		group[i] = arrival{event: &events[i], row: newEventRow(&events[i], blobs[i])}
	}
	receipts, err := s.accepting.Do(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("accept %d events: %w", len(events), err)
	}
	for i, r := range receipts {
		if !r.Duplicate && !r.Conflict {
			blobs[i] = nil // its event's now
		}
	}
	s.release(ctx, blobs)
	return receipts, nil
}

// arrival is an event that is to be accepted.
type arrival struct {
	event *dlq.NewEvent
	row   eventRow
}

// acceptGroups accepts the events of many calls as one.
func (s *Store) acceptGroups(ctx context.Context, groups [][]arrival) ([][]dlq.Receipt, error) {
	receipts, err := s.acceptAll(ctx, slices.Concat(groups...))
	if err != nil {
		return nil, err
	}
	out := make([][]dlq.Receipt, len(groups))
	for i, g := range groups {
		out[i], receipts = receipts[:len(g)], receipts[len(g):]
	}
	return out, nil
}

// acceptAll inserts what is new in one statement, which is its own commit. Only where
// keys are taken does a transaction follow, which says by what.
func (s *Store) acceptAll(ctx context.Context, all []arrival) ([]dlq.Receipt, error) {
	receipts := make([]dlq.Receipt, len(all))
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	for {
		inserted, err := s.insertEvents(ctx, s.pool, pick(left, func(i int) eventRow { return all[i].row }))
		if err != nil {
			return nil, err
		}
		left = takeInserted(all, left, inserted, receipts)
		if len(left) == 0 {
			return receipts, nil
		}
		err = s.inTx(ctx, func(tx pgx.Tx) error { return s.fillTaken(ctx, tx, all, left, receipts) })
		if !errors.Is(err, errForgotten) || ctx.Err() != nil {
			return receipts, err
		}
	}
}

// takeInserted fills in the receipts of what was inserted, and returns the others. A
// second event of a key is one of these.
func takeInserted(all []arrival, left []int, inserted map[string]insertedEvent, receipts []dlq.Receipt) []int {
	var taken []int
	for _, i := range left {
		key := all[i].row.WorkKey
		in, ok := inserted[key]
		if !ok {
			taken = append(taken, i)
			continue
		}
		delete(inserted, key)
		receipts[i] = dlq.Receipt{WorkKey: key, JobID: in.JobID, State: dlq.EventAccepted}
	}
	return taken
}

// errForgotten: a key was taken, and then let go, while its event was being accepted.
var errForgotten = errors.New("work key neither inserted nor standing")

// fillTaken fills in the receipts of those events whose keys are taken.
func (s *Store) fillTaken(ctx context.Context, tx pgx.Tx, all []arrival, taken []int, receipts []dlq.Receipt) error {
	standing, err := standingEvents(ctx, tx, pick(taken, func(i int) string { return all[i].row.WorkKey }))
	if err != nil {
		return err
	}
	var again []eventRow
	for _, i := range taken {
		event, row := all[i].event, all[i].row
		was, ok := standing[row.WorkKey]
		if !ok {
			return errForgotten
		}
		if event.Content && row.at().Sub(was.ReceivedAt) > s.rules.DedupeWindow {
			if receipts[i], err = s.acceptAgain(ctx, tx, row); err != nil {
				return err
			}
		} else {
			receipts[i] = dlq.Receipt{
				WorkKey: row.WorkKey, JobID: was.JobID, State: was.State,
				Replay:    event.Replayed && was.ReceivedAt.Equal(event.ReceivedAt),
				Duplicate: bytes.Equal(was.SHA256, row.SHA256),
				Conflict:  !bytes.Equal(was.SHA256, row.SHA256),
			}
		}
		if receipts[i].Duplicate && !receipts[i].Replay {
			again = append(again, row)
		}
	}
	return countDuplicates(ctx, tx, again)
}

func pick[T any](indexes []int, of func(i int) T) []T {
	out := make([]T, len(indexes))
	for n, i := range indexes {
		out[n] = of(i)
	}
	return out
}

// acceptAgain takes content that was last seen before the dedupe window as a new
// unit, <key>~<n>, n from 2 on.
func (s *Store) acceptAgain(ctx context.Context, tx pgx.Tx, row eventRow) (dlq.Receipt, error) {
	base := row.WorkKey
	for {
		last, found, err := lastRepeat(ctx, tx, base)
		if err != nil {
			return dlq.Receipt{}, err
		}
		if found && row.at().Sub(last.ReceivedAt) <= s.rules.DedupeWindow {
			return dlq.Receipt{WorkKey: last.WorkKey, JobID: last.JobID, State: last.State, Duplicate: true}, nil
		}
		n := 2
		if found {
			n = last.repeat(base) + 1
		}
		row.WorkKey = base + "~" + strconv.Itoa(n)
		inserted, err := s.insertEvents(ctx, tx, []eventRow{row})
		if err != nil {
			return dlq.Receipt{}, err
		}
		if in, ok := inserted[row.WorkKey]; ok {
			return dlq.Receipt{WorkKey: row.WorkKey, JobID: in.JobID, State: dlq.EventAccepted}, nil
		}
		// Somebody else took it meanwhile: look again.
	}
}

type standingEvent struct {
	WorkKey    string
	SHA256     []byte `db:"sha256"`
	State      dlq.EventState
	JobID      int64
	ReceivedAt time.Time
}

func (e standingEvent) repeat(base string) int {
	n, err := strconv.Atoi(e.WorkKey[len(base)+1:])
	if err != nil {
		return 1
	}
	return n
}

func standingEvents(ctx context.Context, tx pgx.Tx, keys []string) (map[string]standingEvent, error) {
	rows, _ := tx.Query(ctx, `select work_key, sha256, state, job_id, received_at from events where work_key = any($1)`, keys)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[standingEvent])
	if err != nil {
		return nil, fmt.Errorf("standing events: %w", err)
	}
	byKey := make(map[string]standingEvent, len(found))
	for _, e := range found {
		byKey[e.WorkKey] = e
	}
	return byKey, nil
}

// lastRepeat is the newest of the events <base>~<n>; children, which hold a #,
// are none.
func lastRepeat(ctx context.Context, tx pgx.Tx, base string) (standingEvent, bool, error) {
	rows, _ := tx.Query(ctx, `select work_key, sha256, state, job_id, received_at from events
		where work_key > $1 || '~' and work_key < $1 || chr(127) and parent_id is null
		order by received_at desc, id desc limit 1`, base)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[standingEvent])
	if err != nil || len(found) == 0 {
		return standingEvent{}, false, err
	}
	return found[0], true, nil
}

// AcceptDead accepts an event that was dead before it ran: its letter is made with
// it. A key that is taken changes nothing.
func (s *Store) AcceptDead(ctx context.Context, e *dlq.NewEvent, f *dlq.Failure) error {
	output, err := json.Marshal(f)
	if err != nil {
		return err
	}
	blobs, err := s.putLarge(ctx, [][]byte{e.Body})
	if err != nil {
		return fmt.Errorf("accept a dead event: %w", err)
	}
	taken := false
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		inserted, err := s.insertEvents(ctx, tx, []eventRow{newEventRow(e, blobs[0])})
		if err != nil || len(inserted) == 0 {
			return err
		}
		taken = true
		// The capture trigger does the rest.
		_, err = tx.Exec(ctx, `update river_job set state = 'cancelled', finalized_at = now(),
			metadata = jsonb_build_object('output', $2::jsonb) where id = $1`, inserted[e.WorkKey].JobID, string(output))
		return err
	})
	if err != nil {
		s.releaseUncommitted(ctx, blobs, err)
		return fmt.Errorf("accept a dead event: %w", err)
	}
	if !taken {
		s.release(ctx, blobs)
	}
	return nil
}

// eventRow is one row for insertEvents.
type eventRow struct {
	WorkKey, Source, Task, Subject, Version, MediaType, Headers, ClaimedCRS string
	ParentID                                                                *int64
	Ordinal, SpanStart, SpanEnd                                             *int32
	Body                                                                    []byte  // nil: in the blob, or in the parent
	Blob                                                                    *string // key in the bucket
	Size                                                                    int64
	SHA256                                                                  []byte
	ReceivedAt                                                              *time.Time // nil: now
}

// at is when the event was received.
func (r *eventRow) at() time.Time {
	if r.ReceivedAt != nil {
		return *r.ReceivedAt
	}
	return time.Now()
}

func newEventRow(e *dlq.NewEvent, blob *string) eventRow {
	sum := e.SHA256()
	body := e.Body
	switch {
	case blob != nil:
		body = nil
	case body == nil:
		body = []byte{} // an empty body is a body
	}
	row := eventRow{
		WorkKey: e.WorkKey, Source: e.Source, Task: e.Task, Subject: e.Subject, Version: e.Version,
		MediaType: e.MediaType, Headers: headersJSON(e.Headers), ClaimedCRS: e.ClaimedCRS,
		Body: body, Blob: blob, Size: int64(len(e.Body)), SHA256: sum[:],
	}
	if !e.ReceivedAt.IsZero() {
		row.ReceivedAt = &e.ReceivedAt
	}
	return row
}

func headersJSON(headers map[string]string) string {
	if len(headers) == 0 {
		return "{}"
	}
	clean := make(map[string]string, len(headers))
	for k, v := range headers {
		clean[k] = dlq.CleanText(v, 1000)
	}
	out, err := json.Marshal(clean)
	if err != nil {
		return "{}"
	}
	return string(out)
}

type insertedEvent struct {
	ID      int64
	WorkKey string
	JobID   int64
}

// insertEventsSQL inserts the events whose key is free and their jobs in one
// statement: a group of events costs one round trip. River's own insert would
// want the ids of the events first and give those of the jobs last; its hooks
// and its NOTIFY are not used here, so workers poll.
const insertEventsSQL = `
with input as (
	select * from unnest(
		@work_key::text[], @source::text[], @task::text[], @parent_id::bigint[], @ordinal::int[],
		@span_start::int[], @span_end::int[], @subject::text[], @version::text[], @body::bytea[], @blob::text[],
		@size::bigint[], @sha256::bytea[], @media_type::text[], @headers::text[], @claimed_crs::text[], @received_at::timestamptz[])
	as t (work_key, source, task, parent_id, ordinal, span_start, span_end, subject, version, body, blob,
		size, sha256, media_type, headers, claimed_crs, received_at)
), event as (
	insert into events (work_key, source, task, parent_id, ordinal, span_start, span_end, subject, version, body, blob,
		size, sha256, media_type, headers, claimed_crs, inherited_crs, received_at, job_id)
	select work_key, source, task, parent_id, ordinal, span_start, span_end, subject, version, body, blob,
		size, sha256, media_type, headers::jsonb, claimed_crs, @inherited_crs::text[], coalesce(received_at, now()), nextval('river_job_id_seq')
	from input
	on conflict (work_key) do nothing
	returning id, work_key, job_id
), job as (
	insert into river_job (id, args, kind, priority, max_attempts, state, scheduled_at)
	select job_id, jsonb_build_object('event_id', id), @kind::text, @priority::smallint, @max_attempts::smallint, 'available', now()
	from event
)
select id, work_key, job_id from event`

func (s *Store) insertEvents(ctx context.Context, db queryer, rows []eventRow, inheritedCRS ...string) (map[string]insertedEvent, error) {
	if inheritedCRS == nil {
		inheritedCRS = []string{}
	}
	// In one order, so that two batches of the same keys never wait for each other.
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b eventRow) int { return strings.Compare(a.WorkKey, b.WorkKey) })
	result, _ := db.Query(ctx, insertEventsSQL, pgx.NamedArgs{
		"work_key":      column(rows, func(r *eventRow) string { return r.WorkKey }),
		"source":        column(rows, func(r *eventRow) string { return r.Source }),
		"task":          column(rows, func(r *eventRow) string { return r.Task }),
		"parent_id":     column(rows, func(r *eventRow) *int64 { return r.ParentID }),
		"ordinal":       column(rows, func(r *eventRow) *int32 { return r.Ordinal }),
		"span_start":    column(rows, func(r *eventRow) *int32 { return r.SpanStart }),
		"span_end":      column(rows, func(r *eventRow) *int32 { return r.SpanEnd }),
		"subject":       column(rows, func(r *eventRow) string { return r.Subject }),
		"version":       column(rows, func(r *eventRow) string { return r.Version }),
		"body":          column(rows, func(r *eventRow) []byte { return r.Body }),
		"blob":          column(rows, func(r *eventRow) *string { return r.Blob }),
		"size":          column(rows, func(r *eventRow) int64 { return r.Size }),
		"sha256":        column(rows, func(r *eventRow) []byte { return r.SHA256 }),
		"media_type":    column(rows, func(r *eventRow) string { return r.MediaType }),
		"headers":       column(rows, func(r *eventRow) string { return r.Headers }),
		"claimed_crs":   column(rows, func(r *eventRow) string { return r.ClaimedCRS }),
		"received_at":   column(rows, func(r *eventRow) *time.Time { return r.ReceivedAt }),
		"inherited_crs": inheritedCRS,
		"kind":          dlq.JobKind, "priority": dlq.JobPriority,
		"max_attempts": s.rules.MaxJobAttempts,
	})
	inserted, err := pgx.CollectRows(result, pgx.RowToStructByName[insertedEvent])
	if err != nil {
		return nil, fmt.Errorf("insert events: %w", err)
	}
	byKey := make(map[string]insertedEvent, len(inserted))
	for _, e := range inserted {
		byKey[e.WorkKey] = e
	}
	return byKey, nil
}

func column[R, T any](rows []R, value func(*R) T) []T {
	out := make([]T, len(rows))
	for i := range rows {
		out[i] = value(&rows[i])
	}
	return out
}

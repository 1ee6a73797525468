package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// Transition does an action other than redrive to a letter, if its status allows
// it, with its row of history. ErrNotFound, or ErrConflict that says who was
// first.
func (s *Store) Transition(ctx context.Context, id int64, action dlq.Action, actor, reason string) error {
	reason = dlq.CleanText(reason, 500)
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		var from dlq.Status
		err := tx.QueryRow(ctx, `
			with was as (select id, status from dead_letters where id = @id and status = any(@from::text[]) for update)
			update dead_letters d set status = @to, reason = @reason, version = version + 1,
				redrives = case when @to = 'pending' then 0 else redrives end,
				not_before = case when @to = 'pending' then null else not_before end,
				resolved_at = case when @to = 'abandoned' then now() end
			from was where d.id = was.id
			returning was.status`, pgx.NamedArgs{
			"id": id, "from": action.From(), "to": action.To(), "reason": reason,
		}).Scan(&from)
		if errors.Is(err, pgx.ErrNoRows) {
			return s.whoWasFirst(ctx, tx, id, action)
		}
		if err != nil {
			return err
		}
		if from == dlq.StatusReplayed {
			if err := reopenEvent(ctx, tx, id); err != nil {
				return err
			}
		}
		return addHistory(ctx, tx, id, actor, string(action), from, action.To(), reason, nil)
	})
	if err != nil {
		return fmt.Errorf("%s letter %d: %w", action, id, err)
	}
	return nil
}

// reopenEvent makes the processed event of a reopened letter dead again, so that
// it can be redriven at the same work key.
func reopenEvent(ctx context.Context, tx pgx.Tx, letterID int64) error {
	_, err := tx.Exec(ctx, `update events e set state = 'dead' from dead_letters d
		where d.id = $1 and e.id = d.event_id and e.state = 'processed'`, letterID)
	return err
}

// Redriven is a letter that was claimed for a redrive, with its new job.
type Redriven struct {
	LetterID int64
	JobID    int64
}

// redriveSQL claims pending letters of dead events: marks them redriving, gives
// their events a new job behind the fence, and enqueues the jobs.
const redriveSQL = `
with claimed as (
	select d.id as letter_id, d.event_id, nextval('river_job_id_seq') as job_id
	from dead_letters d join events e on e.id = d.event_id
	where d.id = any(@ids::bigint[]) and d.status = 'pending' and d.kind = 'event' and e.state = 'dead'
	for update of d, e
), letter as (
	update dead_letters d set status = 'redriving', redriven_at = now(), reason = '', version = d.version + 1
	from claimed c where d.id = c.letter_id
), event as (
	update events e set state = 'retrying', job_id = c.job_id, finished_at = null
	from claimed c where e.id = c.event_id
), job as (
	insert into river_job (id, args, kind, priority, max_attempts, state, scheduled_at, metadata)
	select job_id, jsonb_build_object('event_id', event_id), @kind::text, @priority::smallint, @max_attempts::smallint,
		case when @delay::float8 > 0 then 'scheduled' else 'available' end::river_job_state, now() + make_interval(secs => @delay::float8),
		jsonb_build_object('redrive', jsonb_build_object('letter_id', letter_id, 'cap', @cap::int, 'backoff_seconds', @backoff::float8))
	from claimed
), history as (
	insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason, job_id)
	select letter_id, @actor, 'redrive', 'pending', 'redriving', @reason, job_id from claimed
)
select letter_id, job_id from claimed`

// Redrive claims the letters that may be redriven and enqueues their jobs, in one
// transaction; it returns those it claimed. The others are left as they are. The
// jobs wait for Rules.UndoWindow, in which they can be taken back.
func (s *Store) Redrive(ctx context.Context, ids []int64, actor, reason string) ([]Redriven, error) {
	rows, _ := s.pool.Query(ctx, redriveSQL, pgx.NamedArgs{
		"ids": ids, "kind": dlq.JobKind, "priority": dlq.JobPriority, "max_attempts": s.rules.MaxJobAttempts,
		"cap": s.rules.RedriveCap, "backoff": s.rules.RedriveBackoff.Seconds(),
		"actor": actor, "reason": dlq.CleanText(reason, 500), "delay": s.rules.UndoWindow.Seconds(),
	})
	claimed, err := pgx.CollectRows(rows, pgx.RowToStructByName[Redriven])
	if err != nil {
		return nil, fmt.Errorf("redrive: %w", err)
	}
	return claimed, nil
}

// WhyNot says why an action could not be done to a letter: ErrNotFound or
// ErrConflict.
func (s *Store) WhyNot(ctx context.Context, id int64, action dlq.Action) error {
	return s.inTx(ctx, func(tx pgx.Tx) error { return s.whoWasFirst(ctx, tx, id, action) })
}

func (s *Store) whoWasFirst(ctx context.Context, tx pgx.Tx, id int64, action dlq.Action) error {
	var status dlq.Status
	var kind dlq.Kind
	var actor, last *string
	var at *time.Time
	err := tx.QueryRow(ctx, `select d.status, d.kind, h.actor, h.action, h.at from dead_letters d
		left join lateral (select * from dead_letter_history h where h.letter_id = d.id order by h.id desc limit 1) h on true
		where d.id = $1`, id).Scan(&status, &kind, &actor, &last, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return dlq.ErrNotFound
	}
	if err != nil {
		return err
	}
	if action == dlq.ActionRedrive && kind == dlq.KindGeotask {
		return dlq.Conflict("a reported geotask is redriven by its owner, who runs the work; report its outcome here")
	}
	if actor == nil || at == nil || last == nil {
		return dlq.Conflict("the letter is %s, so it can't be %s", status, action.Past())
	}
	return dlq.Conflict("the letter is %s since %s (%s by %s), so it can't be %s",
		status, at.UTC().Format("2006-01-02 15:04:05 UTC"), *last, *actor, action.Past())
}

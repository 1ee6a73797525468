package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// PreviewLife is how long a previewed order may wait for its start.
const PreviewLife = 15 * time.Minute

// FeedKind is the kind of the job that feeds an order's letters into the pipeline.
const FeedKind = "redrive_feed"

// NewRedrive is an order to be frozen: a filter, or letters by id.
type NewRedrive struct {
	Action dlq.Action
	Filter dlq.Filter
	IDs    []int64 // not nil: these, whatever the filter
	Actor  string
	Reason string
}

// PreviewRedrive freezes the set of an order: which letters it matches, of which
// the action may be done to. What arrives or changes later is not in it. The
// order waits for StartRedrive. ErrTooSlow where too many have to be looked at.
func (s *Store) PreviewRedrive(ctx context.Context, n NewRedrive) (*dlq.Redrive, error) {
	cond, args := where(n.Filter)
	if n.IDs != nil {
		cond, args = "d.id = any(@ids::bigint[])", pgx.NamedArgs{"ids": n.IDs}
	}
	maps.Copy(args, pgx.NamedArgs{
		"from": n.Action.From(), "redrive": n.Action == dlq.ActionRedrive, "action": n.Action,
		"filter": n.Filter.Values().Encode(), "ticked": n.IDs != nil, "actor": n.Actor, "reason": dlq.CleanText(n.Reason, 500),
	})
	var id int64
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if n.IDs == nil && !countable(n.Filter) {
			if _, err := tx.Exec(ctx, s.limitSQL()); err != nil {
				return err
			}
		}
		return tooSlow(ctx, tx.QueryRow(ctx, strings.ReplaceAll(previewSQL, "{where}", cond), args).Scan(&id))
	})
	if err != nil {
		return nil, fmt.Errorf("preview redrive: %w", err)
	}
	return s.RedriveByID(ctx, id)
}

// previewSQL refuses what the action can't be done to, and says why in words.
const previewSQL = `
with matched as (
	select d.id, d.version, d.failed_at, d.class, d.stage, d.anchor,
		case when @redrive::boolean and d.kind = 'geotask' then 'a geotask: its owner redrives it'
			when not d.status = any(@from::text[]) then d.status
			when @redrive::boolean and e.state is distinct from 'dead' then 'its event is not kept here'
		end as refused
	from dead_letters d left join events e on e.id = d.event_id and @redrive::boolean
	where {where}
), counted as (
	select class, stage, refused, count(*) as n, count(anchor) as located from matched group by 1, 2, 3
), orders as (
	insert into redrives (action, filter, ticked, actor, reason, matched, eligible, bad_data, by_class, by_stage, refused)
	select @action, @filter, @ticked::boolean, @actor, @reason,
		coalesce(sum(n), 0), coalesce(sum(n) filter (where refused is null), 0),
		coalesce(sum(n) filter (where refused is null and stage <> 'downstream' and class <> 'unknown'), 0),
		coalesce((select jsonb_object_agg(class, jsonb_build_array(n, located)) from (
			select class, sum(n) as n, sum(located) as located from counted where refused is null group by 1) c), '{}'),
		coalesce((select jsonb_object_agg(stage, jsonb_build_array(n, located)) from (
			select stage, sum(n) as n, sum(located) as located from counted where refused is null group by 1) c), '{}'),
		coalesce((select jsonb_agg(jsonb_build_object('reason', refused, 'count', n) order by n desc)
			from (select refused, sum(n) as n from counted where refused is not null group by 1) c), '[]')
	from counted
	returning id
), frozen as (
	insert into redrive_letters (redrive_id, position, letter_id, version)
	select o.id, row_number() over (order by m.failed_at desc, m.id desc), m.id, m.version
	from matched m, orders o where m.refused is null
)
select id from orders`

// redriveRow is a row of redrives with the counts of its letters.
type redriveRow struct {
	ID         int64
	Action     dlq.Action
	State      dlq.RedriveState
	Filter     string
	Ticked     bool
	Matched    int64
	Eligible   int64
	BadData    int64
	ByClass    map[string][2]int64 // count and located
	ByStage    map[string][2]int64
	Refused    json.RawMessage
	Actor      string
	Reason     string
	CreatedAt  time.Time
	StartedAt  *time.Time
	EndedAt    *time.Time
	ItemCounts map[dlq.RedriveItemState]int64
}

const redriveColumns = `r.id, r.action, r.state, r.filter, r.ticked, r.matched, r.eligible, r.bad_data, r.by_class, r.by_stage, r.refused,
	r.actor, r.reason, r.created_at, r.started_at, r.ended_at,
	coalesce((select jsonb_object_agg(state, n) from (
		select state, count(*) as n from redrive_letters i where i.redrive_id = r.id group by 1) c), '{}') as item_counts`

func (r *redriveRow) redrive() (dlq.Redrive, error) {
	values, err := url.ParseQuery(r.Filter)
	if err != nil {
		return dlq.Redrive{}, fmt.Errorf("filter of redrive %d: %w", r.ID, err)
	}
	filter, err := dlq.ParseFilter(values, r.CreatedAt)
	if err != nil {
		return dlq.Redrive{}, fmt.Errorf("filter of redrive %d: %w", r.ID, err)
	}
	out := dlq.Redrive{
		ID: r.ID, Action: r.Action, State: r.State, Filter: filter, Ticked: r.Ticked,
		Matched: r.Matched, Eligible: r.Eligible, BadData: r.BadData,
		ByClass: named(r.ByClass, dlq.Classes), ByStage: named(r.ByStage, dlq.Stages), Refused: []dlq.Refusal{},
		Counts: dlq.RedriveCounts{
			Waiting: r.ItemCounts[dlq.ItemWaiting], Running: r.ItemCounts[dlq.ItemRunning], Replayed: r.ItemCounts[dlq.ItemReplayed],
			Failed: r.ItemCounts[dlq.ItemFailed], Quarantined: r.ItemCounts[dlq.ItemQuarantined], Skipped: r.ItemCounts[dlq.ItemSkipped],
		},
		Actor: r.Actor, Reason: r.Reason, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
	if err := json.Unmarshal(r.Refused, &out.Refused); err != nil {
		return dlq.Redrive{}, fmt.Errorf("refused of redrive %d: %w", r.ID, err)
	}
	return out, nil
}

func named[T ~string](counts map[string][2]int64, names []T) []dlq.Count {
	out := zeros(names)
	for i := range out {
		n := counts[out[i].Name]
		out[i].Count, out[i].Located = n[0], n[1]
	}
	return out
}

// RedriveByID is an order as it stands; ErrNotFound.
func (s *Store) RedriveByID(ctx context.Context, id int64) (*dlq.Redrive, error) {
	if _, err := s.pool.Exec(ctx, endRedrivesSQL, []int64{id}); err != nil {
		return nil, fmt.Errorf("redrive %d: %w", id, err)
	}
	rows, _ := s.pool.Query(ctx, "select "+redriveColumns+" from redrives r where r.id = $1", id)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[redriveRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("redrive %d: %w", id, dlq.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("redrive %d: %w", id, err)
	}
	redrive, err := row.redrive()
	return &redrive, err
}

// Redrives are the orders, newest first, from before an id on (0: the newest).
func (s *Store) Redrives(ctx context.Context, before int64, limit int) ([]dlq.Redrive, error) {
	rows, _ := s.pool.Query(ctx, "select "+redriveColumns+` from redrives r
		where ($1 = 0 or r.id < $1) and not (r.state = 'preview' and r.created_at < now() - $3::interval)
		order by r.id desc limit $2`, before, limit, PreviewLife)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[redriveRow])
	if err != nil {
		return nil, fmt.Errorf("redrives: %w", err)
	}
	out := make([]dlq.Redrive, len(found))
	for i := range found {
		if out[i], err = found[i].redrive(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// endRedrivesSQL ends running orders all of whose letters have their outcome.
const endRedrivesSQL = `update redrives r set state = 'done', ended_at = now()
	where r.state in ('running', 'paused') and r.id = any($1)
		and not exists (select from redrive_letters i where i.redrive_id = r.id and i.state in ('waiting', 'running'))`

// StartRedrive begins a previewed order and enqueues the job that feeds it. What
// was previewed is what goes; reason, if it is not empty, is kept with it.
// ErrConflict unless it waits for its start.
func (s *Store) StartRedrive(ctx context.Context, id int64, reason string) error {
	return s.moveRedrive(ctx, id, dlq.RedriveRunning, `state = 'preview' and created_at > now() - interval '15 minutes'`,
		"started_at = now(), reason = coalesce(nullif($3, ''), reason)", true, dlq.CleanText(reason, 500))
}

// PauseRedrive stops the feeding of a running order; what was fed, or is being fed, goes on.
func (s *Store) PauseRedrive(ctx context.Context, id int64) error {
	return s.moveRedrive(ctx, id, dlq.RedrivePaused, "state = 'running'", "ended_at = null", false)
}

// ResumeRedrive goes on feeding a paused order.
func (s *Store) ResumeRedrive(ctx context.Context, id int64) error {
	return s.moveRedrive(ctx, id, dlq.RedriveRunning, "state = 'paused'", "ended_at = null", true)
}

func (s *Store) moveRedrive(ctx context.Context, id int64, to dlq.RedriveState, from, set string, feed bool, args ...any) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "update redrives set state = $2, "+set+" where id = $1 and "+from, append([]any{id, to}, args...)...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return whyNotMoved(ctx, tx, id, to)
		}
		if !feed {
			return nil
		}
		_, err = tx.Exec(ctx, `insert into river_job (args, kind, max_attempts, state) values (jsonb_build_object('redrive_id', $1::bigint), $2, 5, 'available')`, id, FeedKind)
		return err
	})
	if err != nil {
		return fmt.Errorf("redrive %d: %w", id, err)
	}
	return nil
}

func whyNotMoved(ctx context.Context, tx pgx.Tx, id int64, to dlq.RedriveState) error {
	var state dlq.RedriveState
	err := tx.QueryRow(ctx, "select state from redrives where id = $1", id).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dlq.ErrNotFound
	case err != nil:
		return err
	case state == dlq.RedrivePreview && to == dlq.RedriveRunning:
		return dlq.Conflict("the preview is older than 15 minutes; make it anew, since the queue has moved on")
	}
	return dlq.Conflict("the order is %s, so it can't become %s", state, to)
}

// RunningRedrives are the orders that have letters to feed.
func (s *Store) RunningRedrives(ctx context.Context) ([]int64, error) {
	rows, _ := s.pool.Query(ctx, `select r.id from redrives r where r.state = 'running'
		and exists (select from redrive_letters i where i.redrive_id = r.id and i.state = 'waiting') order by r.id`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("running redrives: %w", err)
	}
	return ids, nil
}

// EndRedrives ends the running orders all of whose letters have their outcome.
func (s *Store) EndRedrives(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, strings.Replace(endRedrivesSQL, "any($1)", "any(select id from redrives where state in ('running', 'paused'))", 1)); err != nil {
		return fmt.Errorf("end redrives: %w", err)
	}
	return nil
}

// FeedRedrive does the order's action to its next limit letters, in one transaction. It
// returns how many it took up: 0 when the order is not running, all are fed, or
// another feeder is at it. Letters that changed since the preview are skipped.
func (s *Store) FeedRedrive(ctx context.Context, id int64, limit int) (int, error) {
	var fed int
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		// The lock keeps feeders apart and goes with the transaction, however it ends.
		var mine bool
		if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtext('geodlq redrive'), $1::int)", int32(id%(1<<31))).Scan(&mine); err != nil || !mine {
			return err
		}
		var order struct {
			Action dlq.Action
			Actor  string
			Reason string
		}
		// A pause need not wait for the batch, as what would cancel or delete the order must.
		err := tx.QueryRow(ctx, "select action, actor, reason from redrives where id = $1 and state = 'running' for key share", id).
			Scan(&order.Action, &order.Actor, &order.Reason)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		query := bulkTransitionSQL
		if order.Action == dlq.ActionRedrive {
			query = bulkRedriveSQL
		}
		return tx.QueryRow(ctx, query, pgx.NamedArgs{
			"id": id, "limit": limit, "kind": dlq.JobKind, "priority": dlq.JobPriority, "max_attempts": s.rules.MaxJobAttempts,
			"cap": s.rules.RedriveCap, "backoff": s.rules.RedriveBackoff.Seconds(),
			"actor": order.Actor, "reason": order.Reason, "action": order.Action,
			"from": order.Action.From(), "to": order.Action.To(),
		}).Scan(&fed)
	})
	if err != nil {
		return 0, fmt.Errorf("feed redrive %d: %w", id, err)
	}
	return fed, nil
}

// nextSQL are the next letters of an order, with why one is skipped.
const nextSQL = `
with next as (
	select r.position, r.letter_id, r.version from redrive_letters r
	where r.redrive_id = @id and r.state = 'waiting' order by r.position limit @limit
), letter as (
	select n.position, d.id, d.event_id, d.status,
		case when d.version <> n.version or not d.status = any(@from::text[]) then 'changed since the preview: it is ' || d.status end as skip
	from next n join dead_letters d on d.id = n.letter_id
	for update of d
)`

// skippedSQL skips those of next that were not claimed. They are not joined: nobody
// tells the planner how many there are, and it would join each with each.
const skippedSQL = `skipped as (
	update redrive_letters r set state = 'skipped', outcome = s.outcome, ended_at = now()
	from (
		select position, coalesce(skip, 'its event is not kept here') as outcome from letter
		where position not in (select position from claimed)
		union all
		select position, 'the letter is gone' from next where position not in (select position from letter)
	) s
	where r.redrive_id = @id and r.position = s.position
)`

// bulkRedriveSQL is redriveSQL for the next letters of an order.
const bulkRedriveSQL = nextSQL + `, claimed as (
	select l.position, l.id as letter_id, l.event_id, nextval('river_job_id_seq') as job_id
	from letter l join events e on e.id = l.event_id where l.skip is null and e.state = 'dead' for update of e
), marked as (
	update dead_letters d set status = 'redriving', redriven_at = now(), reason = '', version = d.version + 1
	from claimed c where d.id = c.letter_id
), event as (
	update events e set state = 'retrying', job_id = c.job_id, finished_at = null from claimed c where e.id = c.event_id
), job as (
	insert into river_job (id, args, kind, priority, max_attempts, state, scheduled_at, metadata)
	select job_id, jsonb_build_object('event_id', event_id), @kind::text, @priority::smallint, @max_attempts::smallint, 'available', now(),
		jsonb_build_object('redrive', jsonb_build_object('letter_id', letter_id, 'cap', @cap::int, 'backoff_seconds', @backoff::float8))
	from claimed
), history as (
	insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason, job_id)
	select letter_id, @actor, 'redrive', 'pending', 'redriving', left(concat_ws(': ', 'order ' || @id::bigint, nullif(@reason, '')), 500), job_id from claimed
), item as (
	update redrive_letters r set state = 'running', job_id = c.job_id from claimed c where r.redrive_id = @id and r.position = c.position
), ` + skippedSQL + `
select count(*) from next`

// bulkTransitionSQL is Transition for the next letters of an order.
const bulkTransitionSQL = nextSQL + `, marked as (
	update dead_letters d set status = @to, reason = @reason, version = d.version + 1,
		redrives = case when @to = 'pending' then 0 else d.redrives end,
		not_before = case when @to = 'pending' then null else d.not_before end,
		resolved_at = case when @to = 'abandoned' then now() end
	from letter l where d.id = l.id and l.skip is null
), event as (
	update events e set state = 'dead' from letter l where e.id = l.event_id and l.skip is null and l.status = 'replayed' and e.state = 'processed'
), history as (
	insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason)
	select id, @actor, @action, status, @to, left(concat_ws(': ', 'order ' || @id::bigint, nullif(@reason, '')), 500) from letter where skip is null
), claimed as (
	select position from letter where skip is null
), item as (
	update redrive_letters r set state = 'replayed', ended_at = now() from claimed c where r.redrive_id = @id and r.position = c.position
), ` + skippedSQL + `
select count(*) from next`

// CancelRedrive ends an order: what did not go is pending again, also what was fed
// but has not begun to run. What runs goes on to its outcome.
func (s *Store) CancelRedrive(ctx context.Context, id int64, actor string) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		// After the batch that is being fed: its letters are taken back too.
		if _, err := tx.Exec(ctx, "select from redrives where id = $1 for update", id); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `update redrives set state = 'cancelled', ended_at = now()
			where id = $1 and state in ('preview', 'running', 'paused')`, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return whyNotMoved(ctx, tx, id, dlq.RedriveCancelled)
		}
		if _, err := tx.Exec(ctx, `update redrive_letters set state = 'skipped', outcome = 'called off', ended_at = now()
			where redrive_id = $1 and state = 'waiting'`, id); err != nil {
			return err
		}
		_, err = takeBack(ctx, tx, `select job_id from redrive_letters where redrive_id = $1 and state = 'running'`, id, actor, "called off")
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel redrive %d: %w", id, err)
	}
	return nil
}

// takeBack calls off jobs of redrives that have not begun: their letters are
// pending again, without an attempt. The events are dead before their jobs are
// deleted, so that the capture trigger finds nothing to do. jobs selects the ids,
// by $1.
func takeBack(ctx context.Context, tx pgx.Tx, jobs string, arg int64, actor, reason string) (int, error) {
	var taken int
	err := tx.QueryRow(ctx, `
		with job as (
			select j.id from river_job j where j.id in (`+jobs+`) and j.state in ('available', 'scheduled') and j.attempt = 0
			for update skip locked
		), event as (
			update events e set state = 'dead', finished_at = now() from job where e.job_id = job.id and e.state = 'retrying'
			returning e.id, e.job_id
		), letter as (
			update dead_letters d set status = 'pending', redriven_at = null, version = d.version + 1
			from event where d.event_id = event.id and d.status = 'redriving'
			returning d.id, event.job_id
		), item as (
			update redrive_letters r set state = 'skipped', outcome = $2, ended_at = now() from letter where r.job_id = letter.job_id
		), history as (
			insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason, job_id)
			select id, $3, 'undo', 'redriving', 'pending', $2, job_id from letter
		), gone as (
			delete from river_job j using event where j.id = event.job_id
		)
		select count(*) from letter`, arg, reason, actor).Scan(&taken)
	return taken, err
}

// Undo takes back the redrive of one letter, if its job has not begun;
// ErrConflict where it has.
func (s *Store) Undo(ctx context.Context, letterID int64, actor string) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		taken, err := takeBack(ctx, tx, `select e.job_id from dead_letters d join events e on e.id = d.event_id
			where d.id = $1 and d.status = 'redriving'`, letterID, actor, "taken back before it ran")
		if err != nil || taken > 0 {
			return err
		}
		var status dlq.Status
		err = tx.QueryRow(ctx, "select status from dead_letters where id = $1", letterID).Scan(&status)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return dlq.ErrNotFound
		case err != nil:
			return err
		case status == dlq.StatusRedriving:
			return dlq.Conflict("too late: it runs already")
		}
		return dlq.Conflict("the letter is %s; there is no redrive to take back", status)
	})
	if err != nil {
		return fmt.Errorf("undo letter %d: %w", letterID, err)
	}
	return nil
}

// UndoUntil is until when the redrive of a letter can be taken back for certain,
// nil where it can't: its job is promoted then, and may run.
func (s *Store) UndoUntil(ctx context.Context, letterID int64) (*time.Time, error) {
	var until time.Time
	err := s.db(ctx).QueryRow(ctx, `select j.scheduled_at from dead_letters d join events e on e.id = d.event_id join river_job j on j.id = e.job_id
		where d.id = $1 and d.status = 'redriving' and j.state = 'scheduled' and j.scheduled_at > now()`, letterID).Scan(&until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("undo of letter %d: %w", letterID, err)
	}
	return &until, nil
}

// RedriveItems are letters of an order in its order, behind a position, at most
// limit; state selects, "" for all.
func (s *Store) RedriveItems(ctx context.Context, id int64, state dlq.RedriveItemState, after int64, limit int) ([]dlq.RedriveItem, error) {
	rows, _ := s.pool.Query(ctx, `select r.position, r.letter_id, r.state, r.outcome, d.work_key, d.task, d.source, d.stage, d.class, d.error, r.ended_at
		from redrive_letters r join dead_letters d on d.id = r.letter_id
		where r.redrive_id = $1 and r.position > $2 and ($3 = '' or r.state = $3) order by r.position limit $4`, id, after, string(state), limit)
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[dlq.RedriveItem])
	if err != nil {
		return nil, fmt.Errorf("letters of redrive %d: %w", id, err)
	}
	return items, nil
}

// RedriveExtent bounds the located letters of an order; nil: there are none.
func (s *Store) RedriveExtent(ctx context.Context, id int64) (*dlq.Box, error) {
	return extent(ctx, s.pool, "redrive_letters r join dead_letters d on d.id = r.letter_id where r.redrive_id = @id", pgx.NamedArgs{"id": id})
}

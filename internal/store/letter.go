package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
	"geodlq/internal/tally"
)

// letterColumns are the columns of a dlq.Letter, of dead_letters d.
const letterColumns = `d.id, d.work_key, d.kind, d.event_id, d.task, d.source, d.code_version, d.run_id, d.host, d.trace_id, d.log_url,
	d.labels, d.stage, d.class, d.error, d.stack, d.http_status, d.exit_code, d.fingerprint, d.tries, d.attempts, d.redrives,
	d.outcome_unknown, d.context_lost, ST_AsGeoJSON(d.geom, 15)::json as geometry, d.geom_simplified,
	ST_X(d.anchor) as anchor_lon, ST_Y(d.anchor) as anchor_lat, d.located_by, d.src_crs, d.guess_crs, d.geom_hash,
	ST_X(d.invalid_at) as flaw_lon, ST_Y(d.invalid_at) as flaw_lat,
	d.tile_z, d.tile_x, d.tile_y, d.bounds, d.media_type, d.size, coalesce(encode(d.sha256, 'hex'), '') as sha256,
	d.params, d.payload_ref, d.event_time, d.first_failed_at, d.failed_at, d.redriven_at, d.resolved_at, d.not_before,
	d.status, d.reason, d.version`

// Letter is one letter; ErrNotFound.
func (s *Store) Letter(ctx context.Context, id int64) (*dlq.Letter, error) {
	rows, _ := s.db(ctx).Query(ctx, "select "+letterColumns+" from dead_letters d where d.id = $1", id)
	letter, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[dlq.Letter])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("letter %d: %w", id, dlq.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("letter %d: %w", id, err)
	}
	return letter, nil
}

// Letters is a page of at most limit letters of a filter, newest first, behind
// the cursor (nil: the first). ErrTooSlow where too many have to be looked at.
func (s *Store) Letters(ctx context.Context, f dlq.Filter, after *dlq.Cursor, limit int) (*dlq.Page, error) {
	var letters []dlq.Letter
	err := s.reading(ctx, func(tx pgx.Tx) (err error) {
		q := newestQuery{tx: tx, limit: limit + 1, after: after, maxFacets: s.maxFacets}
		if !countable(f) {
			letters, err = q.among(ctx, f)
			return err
		}
		c, err := s.read(ctx, tx, worldNeed)
		if err != nil {
			return err
		}
		letters, err = q.counted(ctx, f, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("letters: %w", err)
	}
	return pageOf(letters, limit), nil
}

// CountedLetters is the first page of Letters, with how many there are: of one
// snapshot, so that they agree.
func (s *Store) CountedLetters(ctx context.Context, f dlq.Filter, limit int) (page *dlq.Page, n int64, err error) {
	var letters []dlq.Letter
	err = s.reading(ctx, func(tx pgx.Tx) (err error) {
		q := newestQuery{tx: tx, limit: limit + 1, maxFacets: s.maxFacets}
		if !countable(f) {
			if letters, err = q.among(ctx, f); err != nil {
				return err
			}
			n, err = countRows(ctx, tx, f)
			return err
		}
		all, err := s.readEach(ctx, tx, worldNeed, countNeed(f))
		if err != nil {
			return err
		}
		if letters, err = q.counted(ctx, f, all[0]); err != nil {
			return err
		}
		n, err = s.countByFacet(ctx, tx, f, all[1])
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("letters with their count: %w", err)
	}
	return pageOf(letters, limit), n, nil
}

// pageOf is a page of limit letters, of which one more was asked for.
func pageOf(letters []dlq.Letter, limit int) *dlq.Page {
	if len(letters) <= limit {
		return &dlq.Page{Letters: letters}
	}
	last := &letters[limit-1]
	return &dlq.Page{Letters: letters[:limit], Next: &dlq.Cursor{FailedAt: last.FailedAt, ID: last.ID}}
}

const (
	// maxFacets is how many facets are told to the database at most: more of them take
	// longer than to look at the names of letters, row by row.
	maxFacets = 20_000

	// maxProbed is of how many facets at most the newest letters are sought in each,
	// some 5 µs a facet: that takes as long however few letters a filter selects, and
	// however many others came last.
	maxProbed = 4096

	// probeCost is how many entries of an index are read in order in the time that it
	// takes to seek one.
	probeCost = 32

	// surplus is how many times as far is looked, in the order of time, as it takes
	// where letters are spread evenly.
	surplus = 4
)

// newestQuery reads the newest letters behind a cursor, in one of three ways.
type newestQuery struct {
	tx    pgx.Tx
	limit int
	after *dlq.Cursor

	maxFacets int
}

// counted seeks letters in the way that counts of all, by facet, tell to be the best.
func (q *newestQuery) counted(ctx context.Context, f dlq.Filter, c *counts) ([]dlq.Letter, error) {
	selected := c.selected(&f)
	letters := c.perFacet(tally.Everything)
	all, some := total(letters, nil), total(letters, selected)
	if some == 0 {
		return nil, nil
	}
	facets := c.hashes(selected)
	if len(facets) > q.maxFacets {
		return q.among(ctx, f)
	}
	timely := dlq.Filter{Statuses: dlq.Statuses, Since: f.Since, Until: f.Until} // the facets say the rest
	if ahead := surplus * int64(q.limit) * all / some; 0 < ahead && ahead < probeCost*int64(len(facets)) {
		letters, err := q.ahead(ctx, timely, facets, ahead)
		if err != nil || len(letters) == q.limit {
			return letters, err
		}
	}
	if len(facets) > maxProbed {
		return q.among(ctx, f)
	}
	return q.probing(ctx, timely, facets)
}

const newestFirst = " order by d.failed_at desc, d.id desc"

// where is the condition of a filter behind the cursor, over dead_letters d.
func (q *newestQuery) where(f dlq.Filter) (string, pgx.NamedArgs) {
	cond, args := where(f)
	args["limit"] = q.limit
	if q.after != nil {
		cond += " and (d.failed_at, d.id) < (@after_at, @after_id)"
		maps.Copy(args, pgx.NamedArgs{"after_at": q.after.FailedAt, "after_id": q.after.ID})
	}
	return cond, args
}

func (q *newestQuery) collect(ctx context.Context, with, cond string, args pgx.NamedArgs) ([]dlq.Letter, error) {
	rows, _ := q.tx.Query(ctx, with+" select "+letterColumns+" from dead_letters d where "+cond+newestFirst+" limit @limit", args)
	return pgx.CollectRows(rows, pgx.RowToStructByName[dlq.Letter])
}

// among seeks letters by all that the filter says.
func (q *newestQuery) among(ctx context.Context, f dlq.Filter) ([]dlq.Letter, error) {
	cond, args := q.where(f)
	return q.collect(ctx, "", cond, args)
}

// ahead seeks letters of some facets among so many of a time. There may be more.
func (q *newestQuery) ahead(ctx context.Context, timely dlq.Filter, facets []int64, among int64) ([]dlq.Letter, error) {
	cond, args := q.where(timely)
	args["facets"], args["among"] = facets, among
	return q.collect(ctx, "", `d.id = any(array(select d.id
		from (select d.failed_at, d.id, d.facet from dead_letters d where `+cond+newestFirst+` limit @among) d
		where exists (select from unnest(@facets::bigint[]) facet where facet = d.facet)`+newestFirst+` limit @limit))`, args)
}

// probing seeks the newest letters of each facet. Those of the page are of those facets
// alone whose own newest are the newest, and none is older than the last of these.
func (q *newestQuery) probing(ctx context.Context, timely dlq.Filter, facets []int64) ([]dlq.Letter, error) {
	cond, args := q.where(timely)
	args["facets"] = facets
	const newest = newestFirst + " limit @limit"
	of := func(facets, more string) string {
		return `(select x.facet, d.failed_at, d.id from ` + facets + ` cross join lateral (
			select d.failed_at, d.id from dead_letters d where d.facet = x.facet and ` + cond + more + `) d` + newest + `)`
	}
	return q.collect(ctx, `with newest as materialized `+of("unnest(@facets::bigint[]) x (facet)", newestFirst+" limit 1")+`,
		last as (select case count(*) when @limit then min(failed_at) else '-infinity' end as failed_at from newest)`,
		`d.id = any(array(select id from `+of("newest x", " and d.failed_at >= (select failed_at from last)"+newest)+` c))`, args)
}

// countRows counts the letters of a filter where names and time don't decide.
func countRows(ctx context.Context, tx pgx.Tx, f dlq.Filter) (n int64, err error) {
	cond, args := where(f)
	err = tx.QueryRow(ctx, "select count(*) from dead_letters d where "+cond, args).Scan(&n)
	return n, err
}

// maxRest is how many letters of parts of an hour are rather read than the blocks of
// their days.
const maxRest = 30_000

// worldNeed is what tells how many letters each facet has.
var worldNeed = need{window: tally.Everything, summary: kindWorld}

// countNeed is what countByFacet counts by.
func countNeed(f dlq.Filter) need {
	if f.Since == nil && f.Until == nil {
		return worldNeed
	}
	_, around := wholeHours(f)
	return need{seconds: true, window: around, summary: kindHours}
}

// countByFacet counts whole hours by their summary, and rows of the parts of an hour at
// the ends of a filter's time, unless they are many. c is what countNeed asks for.
func (s *Store) countByFacet(ctx context.Context, tx pgx.Tx, f dlq.Filter, c *counts) (n int64, err error) {
	selected := c.selected(&f)
	if f.Since == nil && f.Until == nil {
		return total(c.perFacet(tally.Everything), selected), nil
	}
	inside, around := wholeHours(f)
	before, behind := around, around
	before.SecondTo, behind.SecondFrom = inside.SecondFrom, inside.SecondTo
	if total(c.perFacet(before), nil)+total(c.perFacet(behind), nil) <= s.maxRest {
		n, err = s.countParts(ctx, tx, f, c.hashes(selected))
		return n + total(c.perFacet(inside), selected), err
	}
	c, err = s.read(ctx, tx, need{seconds: true, window: wholeSeconds(f), summary: kindHours, edges: parting(wholeSeconds(f), hour), rest: f})
	if err != nil {
		return 0, err
	}
	selected = c.selected(&f)
	count := func(e entry) { n += int64(e.Weight) }
	c.each(selected, count)
	c.eachRest(selected, count)
	return n, nil
}

// countParts counts the letters of a filter, which are of some facets, in the parts of an
// hour at the ends of its time.
func (s *Store) countParts(ctx context.Context, tx pgx.Tx, f dlq.Filter, facets []int64) (n int64, err error) {
	for _, part := range parts(f, time.Hour) {
		var some int64
		if f.Since, f.Until = &part[0], &part[1]; len(facets) > s.maxFacets {
			some, err = countRows(ctx, tx, f)
		} else {
			err = tx.QueryRow(ctx, `select count(*) from dead_letters d where d.failed_at >= $1 and d.failed_at < $2
				and exists (select from unnest($3::bigint[]) facet where facet = d.facet)`, part[0], part[1], facets).Scan(&some)
		}
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// Payload is the exact bytes of a letter, checked against their SHA-256: ErrNotFound
// where there is no letter or it has none, ErrCorrupt where they changed,
// payload.ErrMissing or payload.ErrUnavailable. room is asked before so many bytes are
// read; its error is the answer.
func (s *Store) Payload(ctx context.Context, letterID int64, room func(size int64) error) (*dlq.Payload, error) {
	found, err := s.findPayload(ctx, letterID, room)
	if err == nil {
		err = dlq.CheckSHA256(found.Body, found.SHA256)
	}
	if err != nil {
		return nil, fmt.Errorf("payload of letter %d: %w", letterID, err)
	}
	return found, nil
}

func (s *Store) findPayload(ctx context.Context, letterID int64, room func(size int64) error) (*dlq.Payload, error) {
	var out dlq.Payload
	var eventID *int64
	var size int64
	at := stored{Length: -1}
	err := s.db(ctx).QueryRow(ctx, "select event_id, size, payload, blob, media_type, sha256 from dead_letters where id = $1", letterID).
		Scan(&eventID, &size, &at.Body, &at.Blob, &out.MediaType, &out.SHA256)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, dlq.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if err := room(size); err != nil {
		return nil, err
	}
	if eventID == nil {
		out.Body, err = s.bytesAt(ctx, at)
		return &out, err
	}
	if out.Event, err = s.eventAt(ctx, *eventID); err != nil {
		return nil, err
	}
	if out.Event.Body == nil {
		out.Event.Body, err = s.EventBody(ctx, *eventID)
	}
	out.Body, out.Headers = out.Event.Body, out.Event.Headers
	return &out, err
}

// History is what happened to a letter, oldest first; ErrNotFound.
func (s *Store) History(ctx context.Context, letterID int64) ([]dlq.HistoryEntry, error) {
	rows, _ := s.db(ctx).Query(ctx, `select id, at, actor, action, from_status, to_status, reason, job_id
		from dead_letter_history where letter_id = $1 order by id`, letterID)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByName[dlq.HistoryEntry])
	if err != nil {
		return nil, fmt.Errorf("history of letter %d: %w", letterID, err)
	}
	if len(entries) == 0 {
		if _, err := s.Letter(ctx, letterID); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func addHistory(ctx context.Context, tx pgx.Tx, letterID int64, actor, action string, from, to dlq.Status, reason string, jobID *int64) error {
	_, err := tx.Exec(ctx, `insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason, job_id)
		values ($1, $2, $3, $4, $5, $6, $7)`, letterID, actor, action, from, to, dlq.CleanText(reason, 500), jobID)
	if err != nil {
		return fmt.Errorf("history of letter %d: %w", letterID, err)
	}
	return nil
}

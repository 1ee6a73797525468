package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
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

// maxProbed is of how many facets at most the newest letters are sought in each, and
// those of the page among them: that takes as long however few letters a filter
// selects, and however many others came last. One of more facets selects so many
// letters that they are met soon.
const maxProbed = 512

// Letters is a page of at most limit letters of a filter, newest first, behind
// the cursor (nil: the first). ErrTooSlow where too many have to be looked at.
func (s *Store) Letters(ctx context.Context, f dlq.Filter, after *dlq.Cursor, limit int) (*dlq.Page, error) {
	var letters []dlq.Letter
	err := s.reading(ctx, func(tx pgx.Tx) error {
		query, args, err := s.pageSQL(ctx, tx, f, after)
		if err != nil {
			return err
		}
		args["limit"] = limit + 1
		rows, _ := tx.Query(ctx, query, args)
		letters, err = pgx.CollectRows(rows, pgx.RowToStructByName[dlq.Letter])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("letters: %w", err)
	}
	page := &dlq.Page{Letters: letters}
	if len(letters) > limit {
		page.Letters = letters[:limit]
		last := &letters[limit-1]
		page.Next = &dlq.Cursor{FailedAt: last.FailedAt, ID: last.ID}
	}
	return page, nil
}

// pageSQL reads @limit letters.
func (s *Store) pageSQL(ctx context.Context, tx pgx.Tx, f dlq.Filter, after *dlq.Cursor) (string, pgx.NamedArgs, error) {
	var facets []int64
	probed := false
	if countable(f) {
		c, err := s.read(ctx, tx, need{})
		if err != nil {
			return "", nil, err
		}
		for id, selected := range c.selected(&f) {
			if selected {
				facets = append(facets, c.facets[id].hash)
			}
		}
		// One that is folded elsewhere, but not in this snapshot, is there twice.
		slices.Sort(facets)
		facets = slices.Compact(facets)
		probed = len(facets) <= maxProbed
	}
	if probed {
		f = dlq.Filter{Statuses: dlq.Statuses, Since: f.Since, Until: f.Until} // the facets say the rest
	}
	cond, args := where(f)
	if after != nil {
		cond += " and (d.failed_at, d.id) < (@after_at, @after_id)"
		maps.Copy(args, pgx.NamedArgs{"after_at": after.FailedAt, "after_id": after.ID})
	}
	const order = " order by d.failed_at desc, d.id desc"
	const newest = order + " limit @limit"
	if !probed {
		return "select " + letterColumns + " from dead_letters d where " + cond + newest, args, nil
	}
	args["facets"] = facets
	// The newest letters are of those facets alone whose own newest are the newest.
	of := func(facets, limit string) string {
		return `(select x.facet, d.failed_at, d.id from ` + facets + ` x cross join lateral (
			select d.failed_at, d.id from dead_letters d where d.facet = x.facet and ` + cond + order + ` limit ` + limit + `) d` + newest + `)`
	}
	candidates := of(of("(select unnest(@facets::bigint[]) as facet)", "1"), "@limit")
	return "select " + letterColumns + " from dead_letters d where d.id = any(array(select id from " + candidates + " c))" + newest, args, nil
}

// CountLetters counts the letters of a filter. ErrTooSlow where rows have to be read,
// and are too many.
func (s *Store) CountLetters(ctx context.Context, f dlq.Filter) (n int64, err error) {
	err = s.reading(ctx, func(tx pgx.Tx) error {
		if countable(f) {
			n, err = s.countByFacet(ctx, tx, f)
			return err
		}
		cond, args := where(f)
		return tx.QueryRow(ctx, "select count(*) from dead_letters d where "+cond, args).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("count letters: %w", err)
	}
	return n, nil
}

func (s *Store) countByFacet(ctx context.Context, tx pgx.Tx, f dlq.Filter) (n int64, err error) {
	window := wholeSeconds(f)
	of := need{seconds: true, window: window, summary: kindHours, edges: hourParts(window), rest: f}
	if f.Since == nil && f.Until == nil {
		of = need{window: window, summary: kindWorld}
	}
	c, err := s.read(ctx, tx, of)
	if err != nil {
		return 0, err
	}
	selected := c.selected(&f)
	count := func(e entry) { n += int64(e.Weight) }
	c.each(selected, count)
	c.eachRest(selected, count)
	return n, nil
}

// Payload is the exact bytes of a letter, checked against their SHA-256: ErrNotFound
// where there is no letter or it has none, ErrCorrupt where they changed,
// payload.ErrMissing or payload.ErrUnavailable.
func (s *Store) Payload(ctx context.Context, letterID int64) (*dlq.Payload, error) {
	found, err := s.findPayload(ctx, letterID)
	if err == nil {
		err = dlq.CheckSHA256(found.Body, found.SHA256)
	}
	if err != nil {
		return nil, fmt.Errorf("payload of letter %d: %w", letterID, err)
	}
	return found, nil
}

func (s *Store) findPayload(ctx context.Context, letterID int64) (*dlq.Payload, error) {
	var out dlq.Payload
	var eventID *int64
	at := stored{Length: -1}
	err := s.db(ctx).QueryRow(ctx, "select event_id, payload, blob, media_type, sha256 from dead_letters where id = $1", letterID).
		Scan(&eventID, &at.Body, &at.Blob, &out.MediaType, &out.SHA256)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, dlq.ErrNotFound
	}
	if err != nil {
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

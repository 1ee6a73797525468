package store

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// Feature is what the default sink writes of an event.
type Feature struct {
	Properties []byte // JSON as sent, or nil
	WKB        []byte // EPSG:4326, x = longitude, or nil
}

// completion is an event that is to be marked processed, and its feature.
type completion struct {
	id, jobID int64
	tries     int
	feature   *Feature // nil: the sink is elsewhere
}

func (c *completion) size() int {
	const row = 200 // bytes of a row without its feature, about
	if c.feature == nil {
		return row
	}
	return row + len(c.feature.WKB) + len(c.feature.Properties)
}

// completed is how a completion ended.
type completed struct {
	done     bool    // the fence held
	released *string // the blob of a body that is let go
	err      error   // what was wrong with this one
}

// Complete marks the event processed, in the transaction that writes its feature
// (nil: the sink is elsewhere and has taken it). ErrSuperseded where the fence
// does not hold: nothing is written. Those who complete at once share a commit.
func (s *Store) Complete(ctx context.Context, e *dlq.Event, tries int, f *Feature) error {
	c, err := s.completing.Do(ctx, completion{e.ID, e.JobID, tries, f})
	if err == nil {
		err = c.err
	}
	if err != nil {
		return fmt.Errorf("complete event %d: %w", e.ID, err)
	}
	if !c.done {
		return fmt.Errorf("complete event %d under job %d: %w", e.ID, e.JobID, dlq.ErrSuperseded)
	}
	s.release(ctx, []*string{c.released})
	return nil
}

// completeAll is one statement, which is its own commit.
func (s *Store) completeAll(ctx context.Context, all []completion) ([]completed, error) {
	out := make([]completed, len(all))
	rows, _ := s.pool.Query(ctx, "select n, released, code, message from geodlq_complete_all($1, $2, $3, $4, $5, $6)",
		column(all, func(c *completion) int64 { return c.id }),
		column(all, func(c *completion) int64 { return c.jobID }),
		column(all, func(c *completion) int { return c.tries }),
		column(all, func(c *completion) bool { return c.feature != nil }),
		column(all, (*completion).properties),
		column(all, (*completion).wkb))
	var n int
	var released, code, message *string
	_, err := pgx.ForEachRow(rows, []any{&n, &released, &code, &message}, func() error {
		out[n-1] = completed{done: code == nil, released: released, err: refusal(code, message)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *completion) properties() []byte {
	if c.feature == nil {
		return nil
	}
	return c.feature.Properties
}

func (c *completion) wkb() []byte {
	if c.feature == nil {
		return nil
	}
	return c.feature.WKB
}

// Child is one feature of a collection.
type Child struct {
	Start, End int    // its byte range in the parent's body
	Body       []byte // its bytes; kept apart only where the parent's body is encoded
	Encoded    bool
}

// ownBody is what is kept of a child apart from its parent.
func (c *Child) ownBody() []byte {
	if c.Encoded {
		return c.Body
	}
	return nil
}

// Split replaces a collection by its features, each an event with a job of its
// own, in one transaction. ErrSuperseded as for Complete.
func (s *Store) Split(ctx context.Context, e *dlq.Event, tries int, children []Child, inheritedCRS []string) error {
	blobs, err := s.putLarge(ctx, column(children, (*Child).ownBody))
	if err != nil {
		return fmt.Errorf("split event %d: %w", e.ID, err)
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update events set state = 'split', finished_at = now(), tries = least($3::int, 32767)
			where id = $1 and job_id = $2 and state in ('accepted', 'retrying')`, e.ID, e.JobID, tries)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return dlq.ErrSuperseded
		}
		for first := 0; first < len(children); first += splitPart {
			var rows []eventRow
			for i := first; i < min(first+splitPart, len(children)); i++ {
				rows = append(rows, childRow(e, i, &children[i], blobs[i]))
			}
			if err := s.insertChildren(ctx, tx, rows, inheritedCRS); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.releaseUncommitted(ctx, blobs, err)
		return fmt.Errorf("split event %d: %w", e.ID, err)
	}
	return nil
}

// splitPart is how many children are inserted at once: a row takes many times the bytes of
// a small feature.
const splitPart = 5000

// insertChildren inserts every row. A child's key can only be taken by a part of
// a batch that was sent under its parent's key; the child then gets a suffix, so
// that it is not lost.
func (s *Store) insertChildren(ctx context.Context, tx pgx.Tx, rows []eventRow, inheritedCRS []string) error {
	for try := 0; len(rows) > 0; try++ {
		inserted, err := s.insertEvents(ctx, tx, rows, inheritedCRS...)
		if err != nil {
			return err
		}
		var left []eventRow
		for _, r := range rows {
			if _, ok := inserted[r.WorkKey]; !ok {
				r.WorkKey = fmt.Sprintf("%s~%x", r.WorkKey, r.SHA256[:4])
				left = append(left, r)
			}
		}
		if try == 3 {
			return fmt.Errorf("keys of %d children are taken", len(left))
		}
		rows = left
	}
	return nil
}

func childRow(e *dlq.Event, i int, c *Child, blob *string) eventRow {
	sum := sha256.Sum256(c.Body)
	ordinal, start, end := int32(i), int32(c.Start), int32(c.End)
	row := eventRow{
		WorkKey: dlq.ChildKey(e.WorkKey, i), Source: e.Source, Task: e.Task, MediaType: "application/geo+json",
		Headers: "{}", ClaimedCRS: e.ClaimedCRS, Subject: e.Subject, Version: e.Version,
		ParentID: &e.ID, Ordinal: &ordinal, Size: int64(len(c.Body)), SHA256: sum[:],
		ReceivedAt: &e.ReceivedAt, // it stands on its collection's day in the ledger
	}
	switch {
	case blob != nil:
		row.Blob = blob
	case c.Encoded:
		row.Body = c.Body
	default:
		row.SpanStart, row.SpanEnd = &start, &end
	}
	return row
}

// MarkRetrying notes that the first try of an event failed and others follow.
func (s *Store) MarkRetrying(ctx context.Context, e *dlq.Event) error {
	_, err := s.pool.Exec(ctx, `update events set state = 'retrying'
		where id = $1 and job_id = $2 and state = 'accepted'`, e.ID, e.JobID)
	if err != nil {
		return fmt.Errorf("mark event %d retrying: %w", e.ID, err)
	}
	return nil
}

// Revive takes up a dead event whose job somebody retried in River: its letter
// becomes redriving first. ErrConflict where the letter is not pending.
func (s *Store) Revive(ctx context.Context, e *dlq.Event) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		var letterID int64
		err := tx.QueryRow(ctx, `update dead_letters set status = 'redriving', redriven_at = now(), version = version + 1
			where event_id = $1 and status = 'pending' returning id`, e.ID).Scan(&letterID)
		if err == pgx.ErrNoRows {
			return dlq.Conflict("its letter is not pending")
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `update events set state = 'retrying', finished_at = null
			where id = $1 and job_id = $2 and state = 'dead'`, e.ID, e.JobID)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return dlq.ErrSuperseded
		}
		return addHistory(ctx, tx, letterID, "river", "redrive", dlq.StatusPending, dlq.StatusRedriving, "its job was retried in River", &e.JobID)
	})
	if err != nil {
		return fmt.Errorf("revive event %d: %w", e.ID, err)
	}
	return nil
}

// KeepGeometry writes the geometry of a failure that does not fit the output of
// its job, for the capture to take over.
func (s *Store) KeepGeometry(ctx context.Context, jobID int64, wkb []byte) error {
	_, err := s.pool.Exec(ctx, `insert into failure_geometries (job_id, wkb) values ($1, $2)
		on conflict (job_id) do update set wkb = excluded.wkb`, jobID, wkb)
	if err != nil {
		return fmt.Errorf("keep the geometry of job %d: %w", jobID, err)
	}
	return nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
)

// stored is where bytes are kept: in their row, or a range of a blob.
type stored struct {
	Body   []byte
	Blob   *string
	Offset int64
	Length int64 // -1: to the end
}

// bytesOf are the columns of a stored, of events e with its parent p; from names
// both.
const (
	bytesOf = `case when e.blob is null and p.blob is null then geodlq_body(e) end as body, coalesce(e.blob, p.blob) as blob,
		case when e.blob is null then coalesce(e.span_start, 0) else 0 end as "offset",
		case when e.blob is null and e.span_end is not null then e.span_end - e.span_start else -1 end as length`
	eventWithParent = `events e left join events p on p.id = e.parent_id and e.span_start is not null`
)

// bytesAt is the one way to bytes, wherever they are: ErrNotFound where they are not
// kept, payload.ErrMissing or payload.ErrUnavailable of the bucket.
func (s *Store) bytesAt(ctx context.Context, at stored) ([]byte, error) {
	switch {
	case at.Blob != nil:
		return s.bucket.GetRange(ctx, *at.Blob, at.Offset, at.Length)
	case at.Body == nil:
		return nil, dlq.ErrNotFound
	}
	return at.Body, nil
}

// putsAtOnce bounds the uploads of one call.
const putsAtOnce = 8

// putLarge puts those of many bodies in the bucket that are too large for a row. The
// keys stand in the order of the bodies, nil for those that stay in the row. On an
// error nothing is left behind.
func (s *Store) putLarge(ctx context.Context, bodies [][]byte) ([]*string, error) {
	keys := make([]*string, len(bodies))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(putsAtOnce)
	for i, body := range bodies {
		if len(body) <= s.rules.InlineMax {
			continue
		}
		group.Go(func() error {
			owner, err := s.bucketOwner(groupCtx)
			if err != nil {
				return err
			}
			key, err := s.bucket.Put(groupCtx, owner, body)
			if err == nil {
				keys[i] = &key
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.release(ctx, keys)
		return nil, fmt.Errorf("put large bodies: %w", err)
	}
	return keys, nil
}

// bucketOwner is the prefix of this database's keys.
func (s *Store) bucketOwner(ctx context.Context) (string, error) {
	if owner := s.owner.Load(); owner != nil {
		return *owner, nil
	}
	var owner string
	if err := s.pool.QueryRow(ctx, "select owner from bucket_owner").Scan(&owner); err != nil {
		return "", fmt.Errorf("owner of the bucket: %w", err)
	}
	s.owner.Store(&owner)
	return owner, nil
}

// releaseTimeout bounds a release: its caller has done what it was asked for.
const releaseTimeout = 10 * time.Second

// release deletes blobs that no row refers to any more, as well as it can: what
// stays behind is the collector's.
func (s *Store) release(ctx context.Context, keys []*string) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key *string) bool { return key == nil })
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(putsAtOnce)
	for _, key := range keys {
		group.Go(func() error { return s.bucket.Delete(ctx, *key) })
	}
	_ = group.Wait()
}

// releaseUncommitted releases what a failed transaction referred to, unless it may
// stand after all.
func (s *Store) releaseUncommitted(ctx context.Context, keys []*string, err error) {
	if !errors.Is(err, errCommit) {
		s.release(ctx, keys)
	}
}

// unreferredSQL selects those of many keys that no row refers to.
const unreferredSQL = `select key from unnest($1::text[]) key
	where not exists (select from events e where e.blob = key)
		and not exists (select from dead_letters d where d.blob = key)`

// collectBatch is how many blobs Collect looks at.
const collectBatch = 5000

// Collect deletes blobs that no row refers to and that are older than age, which
// must be longer than any upload waits for its row. It looks at some thousands from
// a cursor on and returns how many it deleted and where to go on.
func (s *Store) Collect(ctx context.Context, age time.Duration, from payload.Cursor) (int, payload.Cursor, error) {
	owner, err := s.bucketOwner(ctx)
	if err != nil {
		return 0, from, err
	}
	keys, next, err := s.bucket.Older(ctx, owner, time.Now().Add(-age), from, collectBatch)
	if err != nil || len(keys) == 0 {
		return 0, next, err
	}
	rows, _ := s.pool.Query(ctx, unreferredSQL, keys)
	orphans, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, from, fmt.Errorf("collect blobs: %w", err)
	}
	for deleted, key := range orphans {
		if err := s.bucket.Delete(ctx, key); err != nil {
			return deleted, from, err
		}
	}
	return len(orphans), next, nil
}

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// maxGroups is how many causes Stats tells.
const maxGroups = 20

// Stats counts the letters of a filter, all figures of one snapshot.
func (s *Store) Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error) {
	stats := &dlq.Stats{}
	err := pgx.BeginTxFunc(ctx, s.pool, snapshotTx, func(tx pgx.Tx) error {
		var first, last *time.Time
		var err error
		if first, last, err = countByName(ctx, tx, f, stats); err != nil {
			return err
		}
		if stats.Groups, err = groups(ctx, tx, f); err != nil {
			return err
		}
		stats.BucketSeconds, stats.Buckets, err = timeline(ctx, tx, f, first, last)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return stats, nil
}

// countByName fills the totals and the counts by stage, class and status, and
// returns the first and last failure.
func countByName(ctx context.Context, tx pgx.Tx, f dlq.Filter, stats *dlq.Stats) (first, last *time.Time, err error) {
	cond, args := where(f)
	type row struct {
		Dimension   int
		Name        *string
		Count       int64
		Located     int64
		First, Last *time.Time
		MaxAttempts *int
	}
	rows, _ := tx.Query(ctx, `select grouping(d.stage, d.class, d.status) as dimension,
			coalesce(d.stage, d.class, d.status) as name, count(*) as count, count(d.anchor) as located,
			min(d.failed_at) as first, max(d.failed_at) as last, max(d.attempts) as max_attempts
		from dead_letters d where `+cond+`
		group by grouping sets ((), (d.stage), (d.class), (d.status))`, args)
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, nil, fmt.Errorf("counts: %w", err)
	}
	stats.ByStage, stats.ByClass, stats.ByStatus = zeros(dlq.Stages), zeros(dlq.Classes), zeros(dlq.Statuses)
	// grouping() sets a bit for each column that is not part of the set.
	byDimension := map[int][]dlq.Count{0b011: stats.ByStage, 0b101: stats.ByClass, 0b110: stats.ByStatus}
	for _, r := range counts {
		if r.Dimension == 0b111 {
			stats.Total, stats.Located, first, last = r.Count, r.Located, r.First, r.Last
			continue
		}
		for i := range byDimension[r.Dimension] {
			if c := &byDimension[r.Dimension][i]; r.Name != nil && c.Name == *r.Name {
				c.Count, c.Located, c.Latest, c.MaxAttempts = r.Count, r.Located, r.Last, *r.MaxAttempts
			}
		}
	}
	return first, last, nil
}

func zeros[T ~string](names []T) []dlq.Count {
	out := make([]dlq.Count, len(names))
	for i, n := range names {
		out[i].Name = string(n)
	}
	return out
}

func groups(ctx context.Context, tx pgx.Tx, f dlq.Filter) ([]dlq.Group, error) {
	cond, args := where(f)
	args["max_groups"] = maxGroups
	rows, _ := tx.Query(ctx, `select d.fingerprint as group, max(d.error) as title, max(d.stage) as stage, max(d.class) as class,
			count(*) as count, count(d.anchor) as located, min(d.failed_at) as first, max(d.failed_at) as last, max(d.id) as sample
		from dead_letters d where `+cond+`
		group by d.fingerprint order by count(*) desc, d.fingerprint limit @max_groups`, args)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[dlq.Group])
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	for i := range found {
		found[i].Title = dlq.GroupTitle(found[i].Title)
	}
	return found, nil
}

// bucketSteps are the widths of a timeline's bars, in seconds.
var bucketSteps = []int{1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400}

// maxBuckets is how many bars a timeline has at most, but for the widest step.
const maxBuckets = 72

func timeline(ctx context.Context, tx pgx.Tx, f dlq.Filter, first, last *time.Time) (int, []dlq.Bucket, error) {
	if first == nil || last == nil {
		return 300, []dlq.Bucket{}, nil
	}
	start, end := *first, *last
	if f.Since != nil {
		start = *f.Since
	}
	if f.Until != nil && f.Until.Before(end) {
		end = *f.Until
	}
	step := bucketStep(end.Sub(start))
	cond, args := where(f)
	args["step"] = step
	type row struct {
		Bucket time.Time
		Class  dlq.Class
		Count  int64
	}
	rows, _ := tx.Query(ctx, `select date_bin(make_interval(secs => @step::int), d.failed_at, 'epoch'::timestamptz) as bucket, d.class, count(*) as count
		from dead_letters d where `+cond+` group by 1, 2`, args)
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return 0, nil, fmt.Errorf("timeline: %w", err)
	}
	from, to := start.Unix()/int64(step), end.Unix()/int64(step)
	buckets := make([]dlq.Bucket, to-from+1)
	for i := range buckets {
		buckets[i] = dlq.Bucket{Start: time.Unix((from+int64(i))*int64(step), 0).UTC(), ByClass: map[dlq.Class]int64{}}
	}
	for _, r := range counts {
		if i := r.Bucket.Unix()/int64(step) - from; i >= 0 && i < int64(len(buckets)) {
			buckets[i].ByClass[r.Class] = r.Count
		}
	}
	return step, buckets, nil
}

func bucketStep(span time.Duration) int {
	for _, step := range bucketSteps {
		if int(span.Seconds())/step < maxBuckets {
			return step
		}
	}
	// Letters of decades in one view: still no more bars than can be drawn.
	widest := bucketSteps[len(bucketSteps)-1]
	return widest * (1 + int(span.Seconds())/widest/maxBuckets)
}

// Depth is the state of the whole queue.
func (s *Store) Depth(ctx context.Context) (*dlq.Depth, error) {
	rows, _ := s.pool.Query(ctx, `
		select count(*) filter (where status = 'pending') as pending,
			count(*) filter (where status = 'redriving') as redriving,
			count(*) filter (where status = 'quarantined') as quarantined,
			count(*) filter (where located_by = 'none') as unlocated,
			(select count(*) from dead_letters where failed_at >= now() - interval '1 hour') as in_last_hour,
			(select count(*) from dead_letters where status = 'replayed' and resolved_at is not null and resolved_at >= now() - interval '1 hour') as out_last_hour,
			min(first_failed_at) as oldest_open,
			(select count(*) from events where state in ('accepted', 'retrying')) as in_flight
		from dead_letters where status in ('pending', 'redriving', 'quarantined')`)
	depth, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[dlq.Depth])
	if err != nil {
		return nil, fmt.Errorf("depth: %w", err)
	}
	return depth, nil
}

// AnyLetter reports whether there ever was a letter.
func (s *Store) AnyLetter(ctx context.Context) (bool, error) {
	var any bool
	if err := s.pool.QueryRow(ctx, "select exists (select from dead_letters)").Scan(&any); err != nil {
		return false, fmt.Errorf("any letter: %w", err)
	}
	return any, nil
}

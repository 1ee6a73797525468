package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
	"geodlq/internal/tally"
)

// maxGroups is how many causes Stats tells.
const maxGroups = 20

// Stats counts the letters of a filter, all figures of one snapshot. ErrTooSlow
// where rows have to be read, and are too many; ErrOverloaded.
func (s *Store) Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error) {
	read := s.countStats
	if !countable(f) {
		read = s.rowStats
	}
	done, err := s.turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	defer done()
	stats := &dlq.Stats{}
	err = s.reading(ctx, func(tx pgx.Tx) error {
		cube, err := read(ctx, tx, f, stats)
		if err != nil {
			return err
		}
		return cube.fillStats(ctx, tx, stats)
	})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return stats, nil
}

// countStats reads from counts: the timeline, and a cube for the rest.
func (s *Store) countStats(ctx context.Context, tx pgx.Tx, f dlq.Filter, stats *dlq.Stats) (*cube, error) {
	window := wholeSeconds(f)
	all, err := s.readEach(ctx, tx,
		need{seconds: true, window: window, summary: kindHours, edges: parting(window, hour), rest: f},
		need{seconds: true, attempts: true, window: window, summary: kindDays, edges: parting(window, day)})
	if err != nil {
		return nil, err
	}
	c, days := all[0], all[1]
	selected := c.selected(&f)
	attempts := newMostAttempts(c.facets)
	days.each(selected, attempts.add)
	days.eachRest(selected, attempts.add)

	slots := c.classSlots()
	facets := newFacetTally(c)
	hours := newSeries(hour, day)
	count := func(e entry) {
		hours.add(int64(e.Second), slots[e.Facet], int64(e.Weight))
		facets.add(e)
	}
	c.each(selected, count)
	c.eachRest(selected, count)
	stats.BucketSeconds, stats.Buckets, err = timeline(hours, f.Since, func() (*series, error) {
		first, last, _ := hours.ends()
		return s.countSeconds(ctx, tx, f, uint64(first), uint64(last)+hour)
	})
	cube := facets.cube(f)
	for i := range cube.cells {
		cube.cells[i].MaxAttempts = attempts.of(cube.cells[i].Status)
	}
	return cube, err
}

// mostAttempts finds the greatest number of attempts by status.
type mostAttempts struct {
	statusOf []int // by facet
	counts   [][]int64
}

func newMostAttempts(facets []*facet) *mostAttempts {
	m := &mostAttempts{statusOf: make([]int, len(facets)), counts: make([][]int64, len(dlq.Statuses))}
	for i, f := range facets {
		for n, status := range dlq.Statuses {
			if f != nil && f.Status == status {
				m.statusOf[i] = n
			}
		}
	}
	return m
}

// mostCounted bounds the attempts that are told apart.
const mostCounted = 1 << 16

func (m *mostAttempts) add(e entry) {
	counts := &m.counts[m.statusOf[e.Facet]]
	n := int(min(e.Attempts, mostCounted))
	if n >= len(*counts) {
		*counts = append(*counts, make([]int64, n+1-len(*counts))...)
	}
	(*counts)[n] += int64(e.Weight)
}

func (m *mostAttempts) of(status dlq.Status) int {
	for n, known := range dlq.Statuses {
		if known != status {
			continue
		}
		for most := len(m.counts[n]) - 1; most >= 0; most-- {
			if m.counts[n][most] != 0 {
				return most
			}
		}
	}
	return 0
}

// rowStats reads from letters: the timeline, and a cube for the rest.
func (s *Store) rowStats(ctx context.Context, tx pgx.Tx, f dlq.Filter, stats *dlq.Stats) (*cube, error) {
	var err error
	if stats.BucketSeconds, stats.Buckets, err = rowTimeline(ctx, tx, f); err != nil {
		return nil, err
	}
	cells, err := rowCells(ctx, tx, f, true)
	return newCube(f, cells), err
}

func (c *cube) fillStats(ctx context.Context, tx pgx.Tx, stats *dlq.Stats) error {
	stats.Total, stats.Located = c.total()
	stats.ByStage = c.counts(&byStage, nil, zeros(dlq.Stages))
	stats.ByClass = c.counts(&byClass, nil, zeros(dlq.Classes))
	stats.ByStatus = c.counts(&byStatus, nil, zeros(dlq.Statuses))
	stats.Groups, _ = c.groups(nil)
	along := []*dimension{&byStage, &byClass, &byStatus}
	if err := c.settle(ctx, tx, c.newest(along)); err != nil {
		return err
	}
	for i, counts := range [][]dlq.Count{stats.ByStage, stats.ByClass, stats.ByStatus} {
		c.latest(along[i], counts)
	}
	return c.describe(ctx, tx, stats.Groups, true)
}

// newest are the newest letters of each name of some dimensions.
func (c *cube) newest(along []*dimension) []extreme {
	var extremes []extreme
	for _, d := range along {
		cells := map[string][]*cubeCell{}
		c.each(nil, func(cell *cubeCell) { cells[d.name(cell.names)] = append(cells[d.name(cell.names)], cell) })
		for _, of := range cells {
			extremes = append(extremes, extreme{of, true})
		}
	}
	return extremes
}

// latest fills in the latest letter of each name, and the most attempts of a status.
func (c *cube) latest(d *dimension, counts []dlq.Count) {
	at := map[string]*dlq.Count{}
	for i := range counts {
		at[counts[i].Name] = &counts[i]
	}
	c.each(nil, func(cell *cubeCell) {
		n := at[d.name(cell.names)]
		if n == nil {
			return
		}
		if d == &byStatus {
			n.MaxAttempts = max(n.MaxAttempts, cell.MaxAttempts)
		}
		if cell.found != nil && (n.Latest == nil || cell.Last.After(*n.Latest)) {
			n.Latest = &cell.Last
		}
	})
}

func zeros[T ~string](names []T) []dlq.Count {
	out := make([]dlq.Count, len(names))
	for i, n := range names {
		out[i].Name = string(n)
	}
	return out
}

// Depth is the state of the whole queue. It is read on the primary, however fit a
// replica is: it is kept for many readers, of whom one may just have written.
func (s *Store) Depth(ctx context.Context) (*dlq.Depth, error) {
	depth := &dlq.Depth{}
	err := s.readingOn(ctx, s.db(ctx), func(tx pgx.Tx) error {
		if err := s.countDepth(ctx, tx, depth); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select
			(select count(*) from dead_letters where status = 'replayed' and resolved_at >= now() - interval '1 hour'),
			(select min(first_failed_at) from dead_letters where status in ('pending', 'redriving', 'quarantined')),
			(select count(*) from events where finished_at is null)`).
			Scan(&depth.OutLastHour, &depth.OldestOpen, &depth.InFlight)
	})
	if err != nil {
		return nil, fmt.Errorf("depth: %w", err)
	}
	return depth, nil
}

func (s *Store) countDepth(ctx context.Context, tx pgx.Tx, depth *dlq.Depth) error {
	c, err := s.read(ctx, tx, need{window: tally.Everything, summary: kindWorld})
	if err != nil {
		return err
	}
	perFacet := c.perFacet(tally.Everything)
	lastHour := tally.Everything
	lastHour.SecondFrom = clampSecond(time.Now().Add(-time.Hour).Unix())
	recent, err := s.read(ctx, tx, need{seconds: true, window: lastHour})
	if err != nil {
		return err
	}
	depth.InLastHour = total(recent.perFacet(lastHour), nil)
	for id, n := range perFacet {
		f := c.facets[id]
		if f == nil {
			continue
		}
		if f.Status.Open() && f.LocatedBy == dlq.LocatedByNone {
			depth.Unlocated += n
		}
		switch f.Status {
		case dlq.StatusPending:
			depth.Pending += n
		case dlq.StatusRedriving:
			depth.Redriving += n
		case dlq.StatusQuarantined:
			depth.Quarantined += n
		}
	}
	return nil
}

// AnyLetter reports whether there ever was a letter.
func (s *Store) AnyLetter(ctx context.Context) (bool, error) {
	var any bool
	err := s.reading(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select exists (select from dead_letters)").Scan(&any)
	})
	if err != nil {
		return false, fmt.Errorf("any letter: %w", err)
	}
	return any, nil
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
)

// maxBars is how many bars a chart of an open vocabulary has.
const maxBars = 20

// Charts counts the letters of a filter for the page: each dimension under the
// whole filter except itself. All figures are of one snapshot, which two
// connections read at once.
func (s *Store) Charts(ctx context.Context, f dlq.Filter) (*dlq.Charts, error) {
	charts := &dlq.Charts{}
	timeless := f
	timeless.Since, timeless.Until = nil, nil
	err := pgx.BeginTxFunc(ctx, s.pool, snapshotTx, func(tx pgx.Tx) error {
		first, last, err := failedBetween(ctx, tx, timeless)
		if err != nil {
			return err
		}
		var snapshot string
		if err := tx.QueryRow(ctx, "select pg_export_snapshot()").Scan(&snapshot); err != nil {
			return err
		}
		var group errgroup.Group
		group.Go(func() error {
			return s.inSnapshot(ctx, snapshot, func(tx pgx.Tx) (err error) {
				charts.BucketSeconds, charts.Buckets, err = timeline(ctx, tx, timeless, first, last)
				return err
			})
		})
		cube, cubeErr := readCube(ctx, tx, f)
		if err := errors.Join(cubeErr, group.Wait()); err != nil {
			return err
		}
		cube.fill(charts)
		return titles(ctx, tx, charts.Groups)
	})
	if err != nil {
		return nil, fmt.Errorf("charts: %w", err)
	}
	return charts, nil
}

var snapshotTx = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// inSnapshot reads what another transaction sees.
func (s *Store) inSnapshot(ctx context.Context, snapshot string, fn func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, snapshotTx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set transaction snapshot '"+snapshot+"'"); err != nil {
			return err
		}
		return fn(tx)
	})
}

// A cube counts letters by every combination of the dimensions that a chart shows,
// under the filter without these dimensions: one scan from which each chart is
// summed.
type cube struct {
	filter dlq.Filter
	cells  []cubeCell
}

type cubeCell struct {
	Class       dlq.Class
	Stage       dlq.Stage
	Status      dlq.Status
	Source      string
	Task        string
	Fingerprint string

	Count, Located int64
	Sample         int64 // a letter of it
	First, Last    time.Time
}

// readCube counts by facet, which one index tells, and looks the names up by a
// letter of each.
func readCube(ctx context.Context, tx pgx.Tx, f dlq.Filter) (*cube, error) {
	outside := f
	outside.Classes, outside.Stages, outside.Sources, outside.Tasks, outside.Groups = nil, nil, nil, nil, nil
	outside.Statuses = dlq.Statuses
	cond, args := where(outside)
	rows, _ := tx.Query(ctx, `
		with facets as materialized (
			select d.facet, count(*) as count, count(*) filter (where d.located_by <> 'none') as located,
				max(d.id) as sample, min(d.failed_at) as first, max(d.failed_at) as last
			from dead_letters d where `+cond+` group by d.facet
		)
		select s.class, s.stage, s.status, s.source, s.task, s.fingerprint, f.count, f.located, f.sample, f.first, f.last
		from facets f join dead_letters s on s.id = f.sample`, args)
	cells, err := pgx.CollectRows(rows, pgx.RowToStructByName[cubeCell])
	if err != nil {
		return nil, fmt.Errorf("cube: %w", err)
	}
	return &cube{f, cells}, nil
}

// dimension is a side of the cube: what a cell is called there, and whether the
// filter selects that name.
type dimension struct {
	name     func(*cubeCell) string
	selected func(*dlq.Filter, *cubeCell) bool
}

var (
	byClass = dimension{func(c *cubeCell) string { return string(c.Class) },
		func(f *dlq.Filter, c *cubeCell) bool { return in(f.Classes, c.Class) }}
	byStage = dimension{func(c *cubeCell) string { return string(c.Stage) },
		func(f *dlq.Filter, c *cubeCell) bool { return in(f.Stages, c.Stage) }}
	byStatus = dimension{func(c *cubeCell) string { return string(c.Status) },
		func(f *dlq.Filter, c *cubeCell) bool {
			if len(f.Statuses) == 0 {
				return c.Status.Open()
			}
			return in(f.Statuses, c.Status)
		}}
	bySource = dimension{func(c *cubeCell) string { return c.Source },
		func(f *dlq.Filter, c *cubeCell) bool { return in(f.Sources, c.Source) }}
	byTask = dimension{func(c *cubeCell) string { return c.Task },
		func(f *dlq.Filter, c *cubeCell) bool { return in(f.Tasks, c.Task) }}
	byGroup = dimension{func(c *cubeCell) string { return c.Fingerprint },
		func(f *dlq.Filter, c *cubeCell) bool { return in(f.Groups, c.Fingerprint) }}
	dimensions = []*dimension{&byClass, &byStage, &byStatus, &bySource, &byTask, &byGroup}
)

func in[T comparable](selection []T, value T) bool {
	return len(selection) == 0 || slices.Contains(selection, value)
}

// each calls fn for the cells under the filter except its dimension left.
func (c *cube) each(left *dimension, fn func(*cubeCell)) {
cells:
	for i := range c.cells {
		for _, d := range dimensions {
			if d != left && !d.selected(&c.filter, &c.cells[i]) {
				continue cells
			}
		}
		fn(&c.cells[i])
	}
}

func (c *cube) fill(charts *dlq.Charts) {
	c.each(nil, func(cell *cubeCell) {
		charts.Total += cell.Count
		charts.Located += cell.Located
	})
	charts.ByClass = c.counts(&byClass, zeros(dlq.Classes))
	charts.ByStage = c.counts(&byStage, zeros(dlq.Stages))
	charts.ByStatus = c.counts(&byStatus, zeros(dlq.Statuses))
	charts.BySource = largest(c.counts(&bySource, nil), c.filter.Sources)
	charts.ByTask = largest(c.counts(&byTask, nil), c.filter.Tasks)
	charts.Groups, charts.GroupCount = c.groups()
}

// counts sums the cube along one dimension; known names come first, in their
// order.
func (c *cube) counts(d *dimension, known []dlq.Count) []dlq.Count {
	counts := known
	at := map[string]int{}
	for i := range counts {
		at[counts[i].Name] = i
	}
	c.each(d, func(cell *cubeCell) {
		name := d.name(cell)
		i, ok := at[name]
		if !ok {
			i = len(counts)
			at[name] = i
			counts = append(counts, dlq.Count{Name: name})
		}
		n := &counts[i]
		n.Count += cell.Count
		n.Located += cell.Located
		if last := cell.Last; n.Latest == nil || last.After(*n.Latest) {
			n.Latest = &last
		}
	})
	return counts
}

// largest keeps the largest bars, and those that the filter selects.
func largest(counts []dlq.Count, selected []string) []dlq.Count {
	slices.SortFunc(counts, func(a, b dlq.Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	kept := counts[:0:0]
	for i, c := range counts {
		if i < maxBars || slices.Contains(selected, c.Name) {
			kept = append(kept, c)
		}
	}
	return kept
}

func (c *cube) groups() ([]dlq.Group, int) {
	var groups []dlq.Group
	at := map[string]int{}
	c.each(&byGroup, func(cell *cubeCell) {
		i, ok := at[cell.Fingerprint]
		if !ok {
			i = len(groups)
			at[cell.Fingerprint] = i
			groups = append(groups, dlq.Group{Group: cell.Fingerprint, Stage: cell.Stage, Class: cell.Class, First: cell.First, Last: cell.Last})
		}
		g := &groups[i]
		g.Count += cell.Count
		g.Located += cell.Located
		g.Sample = max(g.Sample, cell.Sample)
		if cell.First.Before(g.First) {
			g.First = cell.First
		}
		if cell.Last.After(g.Last) {
			g.Last = cell.Last
		}
	})
	slices.SortFunc(groups, func(a, b dlq.Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Group, b.Group))
	})
	kept := groups[:0:0]
	for i, g := range groups {
		if i < maxGroups || slices.Contains(c.filter.Groups, g.Group) {
			kept = append(kept, g)
		}
	}
	return kept, len(groups)
}

// titles fills in what groups are called, by a letter of each.
func titles(ctx context.Context, tx pgx.Tx, groups []dlq.Group) error {
	samples := make([]int64, len(groups))
	for i, g := range groups {
		samples[i] = g.Sample
	}
	rows, _ := tx.Query(ctx, "select id, error from dead_letters where id = any($1)", samples)
	type sample struct {
		ID    int64
		Error string
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[sample])
	if err != nil {
		return fmt.Errorf("titles: %w", err)
	}
	for _, letter := range found {
		if i := slices.Index(samples, letter.ID); i >= 0 {
			groups[i].Title = dlq.GroupTitle(letter.Error)
		}
	}
	return nil
}

// GroupTitles tells what groups are called; one without letters is left out.
func (s *Store) GroupTitles(ctx context.Context, groups []string) ([]dlq.Group, error) {
	rows, _ := s.pool.Query(ctx, `select g as group, l.error as title, l.class, l.stage from unnest($1::text[]) g
		join lateral (select error, class, stage from dead_letters d where d.fingerprint = g order by d.failed_at desc limit 1) l on true`, groups)
	type named struct {
		Group, Title string
		Class        dlq.Class
		Stage        dlq.Stage
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[named])
	if err != nil {
		return nil, fmt.Errorf("titles of groups: %w", err)
	}
	out := make([]dlq.Group, len(found))
	for i, g := range found {
		out[i] = dlq.Group{Group: g.Group, Title: dlq.GroupTitle(g.Title), Class: g.Class, Stage: g.Stage}
	}
	return out, nil
}

func failedBetween(ctx context.Context, tx pgx.Tx, f dlq.Filter) (first, last *time.Time, err error) {
	cond, args := where(f)
	err = tx.QueryRow(ctx, "select min(d.failed_at), max(d.failed_at) from dead_letters d where "+cond, args).Scan(&first, &last)
	if err != nil {
		return nil, nil, fmt.Errorf("failed between: %w", err)
	}
	return first, last, nil
}

// Extent bounds the located letters of a filter, in degrees; nil: there are none.
func (s *Store) Extent(ctx context.Context, f dlq.Filter) (*dlq.Box, error) {
	cond, args := where(f)
	return s.extent(ctx, "dead_letters d where "+cond, args)
}

// extent bounds the anchors of what from selects; where that is narrower it crosses
// the antimeridian, west > east.
func (s *Store) extent(ctx context.Context, from string, args pgx.NamedArgs) (*dlq.Box, error) {
	var west, south, east, north, west360, east360 *float64
	err := s.pool.QueryRow(ctx, `select ST_XMin(e), ST_YMin(e), ST_XMax(e), ST_YMax(e), ST_XMin(o), ST_XMax(o)
		from (select ST_Extent(d.anchor) as e, ST_Extent(ST_ShiftLongitude(d.anchor)) as o from `+from+") x", args).
		Scan(&west, &south, &east, &north, &west360, &east360)
	if err != nil {
		return nil, fmt.Errorf("extent: %w", err)
	}
	if west == nil {
		return nil, nil
	}
	box := &dlq.Box{West: *west, South: *south, East: *east, North: *north}
	if *east360-*west360 < box.East-box.West {
		box.West, box.East = *west360, *east360
		if box.West > 180 {
			box.West -= 360
		}
		if box.East > 180 {
			box.East -= 360
		}
	}
	return box, nil
}

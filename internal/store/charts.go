package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
	"geodlq/internal/tally"
)

// maxBars is how many bars a chart of an open vocabulary has.
const maxBars = 20

// Charts counts the letters of a filter for the page: each dimension under the
// whole filter except itself, and the timeline under it without its time. All
// figures are of one snapshot. What counts don't know is left zero: the latest of a
// count, the last of a group. ErrTooSlow where rows have to be read, and are too many;
// ErrOverloaded.
func (s *Store) Charts(ctx context.Context, f dlq.Filter) (*dlq.Charts, error) {
	read := s.countCharts
	if !countable(f) {
		read = s.rowCharts
	}
	done, err := s.turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("charts: %w", err)
	}
	defer done()
	charts := &dlq.Charts{}
	err = s.reading(ctx, func(tx pgx.Tx) error { return read(ctx, tx, f, charts) })
	if err != nil {
		return nil, fmt.Errorf("charts: %w", err)
	}
	return charts, nil
}

// A cube counts letters by facet, under a filter without what the charts count by:
// one look from which each chart is summed.
type cube struct {
	filter dlq.Filter
	cells  []cubeCell
}

// cubeCell is small: there may be hundreds of thousands.
type cubeCell struct {
	*names
	Facet       int64
	Count       int64
	MaxAttempts int
	fails       uint16 // what of the cube's filter it does not pass; see matcher.fails

	notBefore, notAfter int64 // seconds within which its letters failed

	*found // nil: nobody asked
}

// found is what letters say of a cell, and counts don't.
type found struct {
	First, Last time.Time
	Sample      int64 // the newest letter
}

func newCube(f dlq.Filter, cells []cubeCell) *cube {
	m := match(&f)
	for i := range cells {
		cells[i].fails = m.fails(cells[i].names)
	}
	return &cube{f, cells}
}

// outside is a filter without what charts count by.
func outside(f dlq.Filter) dlq.Filter {
	f.Classes, f.Stages, f.Sources, f.Tasks, f.Groups = nil, nil, nil, nil, nil
	f.Statuses = dlq.Statuses
	return f
}

// countCharts reads charts from counts.
func (s *Store) countCharts(ctx context.Context, tx pgx.Tx, f dlq.Filter, charts *dlq.Charts) error {
	window := wholeSeconds(f)
	c, err := s.read(ctx, tx, need{
		seconds: true, window: tally.Everything, summary: kindHours, edges: parting(window, hour), rest: f,
	})
	if err != nil {
		return err
	}
	timely := c.selected(&f)
	slots := c.classSlots()
	facets := newFacetTally(c)
	hours := newSeries(hour, day)
	out := outside(f)
	all := c.selected(&out)
	c.each(all, func(e entry) {
		if timely[e.Facet] {
			hours.add(int64(e.Second), slots[e.Facet], int64(e.Weight))
		}
		if second := uint64(e.Second); second >= window.SecondFrom && second < window.SecondTo {
			facets.add(e)
		}
	})
	c.eachRest(all, facets.add)
	charts.BucketSeconds, charts.Buckets, err = timeline(hours, nil, func() (*series, error) {
		first, last, _ := hours.ends()
		timeless := f
		timeless.Since, timeless.Until = nil, nil
		return s.countSeconds(ctx, tx, timeless, uint64(first), uint64(last)+hour)
	})
	if err != nil {
		return err
	}
	cube := facets.cube(f)
	cube.fill(charts)
	return cube.describe(ctx, tx, charts.Groups, false)
}

// facetTally counts by facet.
type facetTally struct {
	counts  *counts
	letters []int64
	first   []uint32 // bounds of the seconds
	last    []uint32
}

func newFacetTally(c *counts) *facetTally {
	n := len(c.facets)
	return &facetTally{counts: c, letters: make([]int64, n), first: make([]uint32, n), last: make([]uint32, n)}
}

func (t *facetTally) add(e entry) {
	t.letters[e.Facet] += int64(e.Weight)
	if e.Weight <= 0 {
		return
	}
	if first := &t.first[e.Facet]; *first == 0 || e.Second < *first {
		*first = e.Second
	}
	t.last[e.Facet] = max(t.last[e.Facet], e.Second)
}

// cube is what was counted, under the rest of a filter.
func (t *facetTally) cube(f dlq.Filter) *cube {
	some := 0
	for _, n := range t.letters {
		if n != 0 {
			some++
		}
	}
	cells := make([]cubeCell, 0, some)
	for id, n := range t.letters {
		if n != 0 {
			cells = append(cells, cubeCell{
				names: &t.counts.facets[id].names, Facet: t.counts.facets[id].hash, Count: n,
				notBefore: int64(t.first[id]), notAfter: int64(t.last[id]) + hour - 1, // an entry may stand for an hour
			})
		}
	}
	return newCube(f, cells)
}

// classSlots is the slot of each facet's class.
func (c *counts) classSlots() []int {
	slots := make([]int, len(c.facets))
	for i, f := range c.facets {
		if f != nil {
			slots[i] = classSlot(f.Class)
		}
	}
	return slots
}

// countSeconds counts the letters of a filter by the second, between two seconds.
func (s *Store) countSeconds(ctx context.Context, tx pgx.Tx, f dlq.Filter, from, to uint64) (*series, error) {
	window := wholeSeconds(f)
	window.SecondFrom, window.SecondTo = max(window.SecondFrom, from), min(window.SecondTo, to)
	c, err := s.read(ctx, tx, need{seconds: true, window: window, rest: f})
	if err != nil {
		return nil, err
	}
	return c.seconds(&f, c.each, c.eachRest), nil
}

// seconds counts by the second what each gives.
func (c *counts) seconds(f *dlq.Filter, each ...func([]bool, func(entry))) *series {
	seconds := newSeries(1, hour)
	slots := c.classSlots()
	for _, each := range each {
		each(c.selected(f), func(e entry) { seconds.add(int64(e.Second), slots[e.Facet], int64(e.Weight)) })
	}
	return seconds
}

// rowCharts reads charts from letters.
func (s *Store) rowCharts(ctx context.Context, tx pgx.Tx, f dlq.Filter, charts *dlq.Charts) error {
	timeless := f
	timeless.Since, timeless.Until = nil, nil
	var err error
	if charts.BucketSeconds, charts.Buckets, err = rowTimeline(ctx, tx, timeless); err != nil {
		return err
	}
	cells, err := rowCells(ctx, tx, outside(f), false)
	if err != nil {
		return err
	}
	cube := newCube(f, cells)
	cube.fill(charts)
	return cube.describe(ctx, tx, charts.Groups, false)
}

// rowCells counts the letters of a filter by facet.
func rowCells(ctx context.Context, tx pgx.Tx, f dlq.Filter, attempts bool) ([]cubeCell, error) {
	cond, args := where(f)
	most := "0" // the index on facet does not tell
	if attempts {
		most = "max(d.attempts)"
	}
	rows, _ := tx.Query(ctx, `
		with facets as materialized (
			select d.facet, count(*) as count, min(d.failed_at) as first, max(d.failed_at) as last, `+most+` as attempts
			from dead_letters d where `+cond+` group by d.facet
		)
		select l.*, f.facet, f.count, f.attempts, f.first, f.last, s.id from facets f
		cross join lateral (select max(d.id) as id from dead_letters d where d.facet = f.facet and d.failed_at = f.last) s
		cross join lateral (`+facetNamesSQL+` where d.id = s.id) l`, args)
	cells, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (cubeCell, error) {
		c := cubeCell{names: &names{}, found: &found{}}
		err := row.Scan(&c.Class, &c.Stage, &c.Status, &c.Source, &c.Task, &c.Fingerprint, &c.LocatedBy, &c.Located,
			&c.Facet, &c.Count, &c.MaxAttempts, &c.First, &c.Last, &c.Sample)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("cube: %w", err)
	}
	return cells, nil
}

// rowTimeline counts the letters of a filter over time.
func rowTimeline(ctx context.Context, tx pgx.Tx, f dlq.Filter) (int, []dlq.Bucket, error) {
	cond, args := where(f)
	read := func(step, page int64) (*series, error) {
		args["step"] = step
		out := newSeries(step, page)
		rows, _ := tx.Query(ctx, `select `+fmt.Sprintf(entrySecond, "d.failed_at")+` / @step::bigint * @step::bigint, d.class, count(*)
			from dead_letters d where `+cond+` group by 1, 2`, args)
		var second, n int64
		var class dlq.Class
		_, err := pgx.ForEachRow(rows, []any{&second, &class, &n}, func() error {
			out.add(second, classSlot(class), n)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("timeline: %w", err)
		}
		return out, nil
	}
	hours, err := read(hour, 86400)
	if err != nil {
		return 0, nil, err
	}
	return timeline(hours, f.Since, func() (*series, error) { return read(1, hour) })
}

// each calls fn for the cells under the filter except its dimension left.
func (c *cube) each(left *dimension, fn func(*cubeCell)) {
	leave := left.bit()
	for i := range c.cells {
		if cell := &c.cells[i]; cell.fails&^leave == 0 {
			fn(cell)
		}
	}
}

func (c *cube) fill(charts *dlq.Charts) {
	charts.Total, charts.Located = c.total()
	charts.ByClass = c.counts(&byClass, &byClass, zeros(dlq.Classes))
	charts.ByStage = c.counts(&byStage, &byStage, zeros(dlq.Stages))
	charts.ByStatus = c.counts(&byStatus, &byStatus, zeros(dlq.Statuses))
	charts.BySource, _ = c.largest(&bySource, &bySource, maxBars)
	charts.ByTask, _ = c.largest(&byTask, &byTask, maxBars)
	charts.Groups, charts.GroupCount = c.groups(&byGroup)
}

func (c *cube) total() (all, located int64) {
	c.each(nil, func(cell *cubeCell) {
		all += cell.Count
		located += cell.located()
	})
	return all, located
}

func (c *cubeCell) located() int64 {
	if c.Located {
		return c.Count
	}
	return 0
}

// counts sums the cube along one dimension, under the filter except left; known
// names come first, in their order.
func (c *cube) counts(d, left *dimension, known []dlq.Count) []dlq.Count {
	counts := known
	at := map[string]int{}
	for i := range counts {
		at[counts[i].Name] = i
	}
	c.each(left, func(cell *cubeCell) {
		name := d.name(cell.names)
		i, ok := at[name]
		if !ok {
			i = len(counts)
			at[name] = i
			counts = append(counts, dlq.Count{Name: name})
		}
		n := &counts[i]
		n.Count += cell.Count
		n.Located += cell.located()
	})
	return counts
}

// largest are the n largest names along one dimension, under the filter except left, and
// those that it selects; how many there are of all.
func (c *cube) largest(d, left *dimension, n int) ([]dlq.Count, int) {
	all := c.counts(d, left, nil)
	before := func(a, b *dlq.Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) }
	var selected []string
	if left == d {
		selected = d.selection(&c.filter)
	}
	var largest, others []dlq.Count // sorting all would take longer than counting them
	for i := range all {
		out := all[i]
		if len(largest) == n && before(&largest[n-1], &out) < 0 {
			if slices.Contains(selected, out.Name) {
				others = append(others, out)
			}
			continue
		}
		at, _ := slices.BinarySearchFunc(largest, &out, func(a dlq.Count, b *dlq.Count) int { return before(&a, b) })
		largest = slices.Insert(largest, at, out)
		if len(largest) > n {
			if last := largest[n]; slices.Contains(selected, last.Name) {
				others = append(others, last)
			}
			largest = largest[:n]
		}
	}
	slices.SortFunc(others, func(a, b dlq.Count) int { return before(&a, &b) })
	return append(largest, others...), len(all)
}

// groups are the largest causes under the filter except left, and those that it
// selects; how many there are of all.
func (c *cube) groups(left *dimension) ([]dlq.Group, int) {
	largest, n := c.largest(&byGroup, left, maxGroups)
	groups := make([]dlq.Group, len(largest))
	for i, of := range largest {
		groups[i] = dlq.Group{Group: of.Name, Count: of.Count, Located: of.Located}
	}
	return groups, n
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

// Extent bounds the located letters of a filter, in degrees; nil: there are none.
// ErrTooSlow where they are too many to be read.
func (s *Store) Extent(ctx context.Context, f dlq.Filter) (box *dlq.Box, err error) {
	cond, args := where(f)
	err = s.reading(ctx, func(tx pgx.Tx) error {
		box, err = extent(ctx, tx, "dead_letters d where "+cond, args)
		return err
	})
	return box, err
}

// extent bounds the anchors of what from selects; where that is narrower it crosses
// the antimeridian, west > east.
func extent(ctx context.Context, on queryer, from string, args pgx.NamedArgs) (*dlq.Box, error) {
	var west, south, east, north, west360, east360 *float64
	err := on.QueryRow(ctx, `select ST_XMin(e), ST_YMin(e), ST_XMax(e), ST_YMax(e), ST_XMin(o), ST_XMax(o)
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

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// extreme is the first or the newest letter that some cells of a cube have between
// them. Counts tell seconds or hours; the letters themselves are looked up in an
// index, facet by facet, but only where they may come into question.
type extreme struct {
	cells  []*cubeCell
	newest bool
}

// next are the cells to look up: at first the one that is likeliest, then all that
// may still have a letter beyond what was found.
func (e extreme) next() []*cubeCell {
	var found, likeliest *cubeCell
	for _, cell := range e.cells {
		switch {
		case cell.found != nil && (found == nil || e.compare(cell, found) > 0):
			found = cell
		case cell.found == nil && (likeliest == nil || e.bound(cell) > e.bound(likeliest)):
			likeliest = cell
		}
	}
	// One that was looked up for another extreme may lie anywhere.
	if likeliest != nil && (found == nil || e.bound(likeliest) > e.bound(found)) {
		return []*cubeCell{likeliest}
	}
	var next []*cubeCell
	for _, cell := range e.cells {
		if cell.found == nil && e.bound(cell) >= e.at(found) {
			next = append(next, cell)
		}
	}
	return next
}

// compare is positive where a has a letter beyond those of b, both looked up.
func (e extreme) compare(a, b *cubeCell) int {
	if e.newest {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Sample, b.Sample))
	}
	return b.First.Compare(a.First)
}

// bound is how far, in seconds, the letters of a cell may reach.
func (e extreme) bound(cell *cubeCell) int64 {
	if e.newest {
		return cell.notAfter
	}
	return -cell.notBefore
}

// at is how far the letters of a cell that was looked up do reach.
func (e extreme) at(cell *cubeCell) int64 {
	if e.newest {
		return cell.Last.Unix()
	}
	return -cell.First.Unix()
}

// settle looks up what decides some extremes.
func (c *cube) settle(ctx context.Context, tx pgx.Tx, extremes []extreme) error {
	for {
		at := map[int64]*cubeCell{}
		for _, e := range extremes {
			for _, cell := range e.next() {
				at[cell.Facet] = cell
			}
		}
		if len(at) == 0 {
			return nil
		}
		if err := c.lookUp(ctx, tx, at); err != nil {
			return err
		}
	}
}

// lookUp fills in the first, the last and the newest letter of facets.
func (c *cube) lookUp(ctx context.Context, tx pgx.Tx, at map[int64]*cubeCell) error {
	facets := make([]int64, 0, len(at))
	for facet := range at {
		facets = append(facets, facet)
	}
	cond, args := where(dlq.Filter{Statuses: dlq.Statuses, Since: c.filter.Since, Until: c.filter.Until})
	args["facets"] = facets
	rows, _ := tx.Query(ctx, `select x.facet, a.failed_at, z.failed_at, z.id from unnest(@facets::bigint[]) x (facet)
		cross join lateral (select d.failed_at from dead_letters d where d.facet = x.facet and `+cond+`
			order by d.failed_at, d.id limit 1) a
		cross join lateral (select d.failed_at, d.id from dead_letters d where d.facet = x.facet and `+cond+`
			order by d.failed_at desc, d.id desc limit 1) z`, args)
	var facet, sample int64
	var first, last time.Time
	n := 0
	_, err := pgx.ForEachRow(rows, []any{&facet, &first, &last, &sample}, func() error {
		cell := at[facet]
		cell.found = &found{first, last, sample}
		n++
		return nil
	})
	if err != nil {
		return fmt.Errorf("first and last letters: %w", err)
	}
	if n < len(at) {
		return fmt.Errorf("counts know %d kinds of letters that there are not: run geodlq counts rebuild", len(at)-n)
	}
	return nil
}

// describe fills in when groups began, what they are called, and, if asked to, when
// they ended. Stage, class and title are those of the kind of letters that a group
// has most of.
func (c *cube) describe(ctx context.Context, tx pgx.Tx, groups []dlq.Group, withLast bool) error {
	members := make(map[string][]*cubeCell, len(groups))
	for _, g := range groups {
		members[g.Group] = nil
	}
	c.each(&byGroup, func(cell *cubeCell) {
		if of, ok := members[cell.Fingerprint]; ok {
			members[cell.Fingerprint] = append(of, cell)
		}
	})
	var extremes []extreme
	for _, g := range groups {
		of := members[g.Group]
		extremes = append(extremes, extreme{of, false}, extreme{[]*cubeCell{mostFrequentCell(of)}, true})
		if withLast {
			extremes = append(extremes, extreme{of, true})
		}
	}
	if err := c.settle(ctx, tx, extremes); err != nil {
		return err
	}
	for i := range groups {
		g := &groups[i]
		most := mostFrequentCell(members[g.Group])
		g.Stage, g.Class, g.Sample = most.Stage, most.Class, most.Sample
		for _, cell := range members[g.Group] {
			if cell.found == nil {
				continue
			}
			if g.First.IsZero() || cell.First.Before(g.First) {
				g.First = cell.First
			}
			if withLast && cell.Last.After(g.Last) {
				g.Last = cell.Last
			}
		}
	}
	return titles(ctx, tx, groups)
}

// mostFrequentCell is the cell that counts most, the one of the least facet of equals.
func mostFrequentCell(cells []*cubeCell) *cubeCell {
	return slices.MaxFunc(cells, func(a, b *cubeCell) int {
		return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(b.Facet, a.Facet))
	})
}

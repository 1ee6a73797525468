package geo

import (
	"cmp"
	"math"
	"slices"

	"github.com/paulmach/orb"
)

// Anchor is a point on g by which it is shown and found: the point itself, the
// middle vertex of the longest line, or a point inside the polygon that is
// widest at half its height, as JTS's InteriorPointArea does it. In a collection
// polygons go before lines and lines before points. Invalid, open and flat rings
// are taken as they are; where there is no inside, the first vertex is the
// anchor. It is false when g holds no finite vertex.
func Anchor(g orb.Geometry) (orb.Point, bool) {
	var b anchors
	b.visit(g)
	switch {
	case b.inside.found:
		return b.inside.at, true
	case b.onLine.found && !b.flat.found:
		return b.onLine.at, true
	case b.flat.found:
		return b.flat.at, true
	}
	return b.first.at, b.first.found
}

// anchors holds the best candidate of each dimension.
type anchors struct {
	inside candidate // in a polygon, by width
	flat   candidate // the first vertex of a polygon, for one without an inside
	onLine candidate // on a line, by length
	first  candidate // the first point
}

type candidate struct {
	at    orb.Point
	size  float64
	found bool
}

// offer takes p if it is the first, or larger than the one there is.
func (c *candidate) offer(p orb.Point, size float64) {
	if finite(p) && (!c.found || size > c.size) {
		*c = candidate{p, size, true}
	}
}

func (b *anchors) visit(g orb.Geometry) {
	switch g := g.(type) {
	case orb.Point:
		b.first.offer(g, 0)
	case orb.MultiPoint:
		for _, p := range g {
			b.first.offer(p, 0)
		}
	case orb.LineString:
		b.line(g)
	case orb.MultiLineString:
		for _, ls := range g {
			b.line(ls)
		}
	case orb.Ring:
		b.polygon(orb.Polygon{g})
	case orb.Polygon:
		b.polygon(g)
	case orb.MultiPolygon:
		for _, p := range g {
			b.polygon(p)
		}
	case orb.Bound:
		b.polygon(g.ToPolygon())
	case orb.Collection:
		for _, m := range g {
			b.visit(m)
		}
	}
}

func (b *anchors) line(ls orb.LineString) {
	if len(ls) == 0 {
		return
	}
	length := 0.0
	for i, p := range ls[1:] {
		length += math.Hypot(p[0]-ls[i][0], p[1]-ls[i][1])
	}
	b.onLine.offer(ls[len(ls)/2], length)
	// For a line whose middle vertex is NaN.
	for _, p := range ls {
		if !b.onLine.found {
			b.onLine.offer(p, 0)
		}
	}
}

func (b *anchors) polygon(p orb.Polygon) {
	for _, ring := range p {
		for _, v := range ring {
			if !b.flat.found {
				b.flat.offer(v, 0)
			}
		}
	}
	y, ok := scanHeight(p)
	if !ok {
		return
	}
	if x, width := widest(crossings(p, y)); width > 0 {
		b.inside.offer(orb.Point{x, y}, width)
	}
}

// scanHeight is a y at about half the height of the shell that no vertex of the
// polygon has, so that each crossing is a clean one: midway between the nearest
// vertices above and below the middle.
func scanHeight(p orb.Polygon) (float64, bool) {
	if len(p) == 0 {
		return 0, false
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range p[0] {
		if finite(v) {
			low, high = min(low, v[1]), max(high, v[1])
		}
	}
	if !(low < high) {
		return 0, false
	}
	middle := low/2 + high/2
	for _, ring := range p {
		for _, v := range ring {
			if v[1] <= middle {
				low = max(low, v[1])
			} else {
				high = min(high, v[1])
			}
		}
	}
	return low/2 + high/2, true
}

// crossing is where a ring crosses the scanline.
type crossing struct {
	x    float64
	hole bool
}

// crossings are those of all rings, west to east. An open ring is taken for closed.
func crossings(p orb.Polygon, y float64) []crossing {
	var all []crossing
	for i, ring := range p {
		for j, v := range ring {
			u := ring[(j+len(ring)-1)%len(ring)]
			if !finite(u) || !finite(v) || (u[1] <= y) == (v[1] <= y) {
				continue
			}
			t := (y/2 - u[1]/2) / (v[1]/2 - u[1]/2)
			all = append(all, crossing{u[0]*(1-t) + v[0]*t, i > 0})
		}
	}
	slices.SortFunc(all, func(a, b crossing) int { return cmp.Compare(a.x, b.x) })
	return all
}

// widest is the middle and the width of the widest interval that is inside the
// shell and outside the holes, each by the even-odd rule.
func widest(all []crossing) (middle, width float64) {
	inShell, inHole := false, false
	for i, c := range all {
		if c.hole {
			inHole = !inHole
		} else {
			inShell = !inShell
		}
		if i+1 == len(all) || !inShell || inHole {
			continue
		}
		if w := all[i+1].x - c.x; w > width {
			middle, width = c.x/2+all[i+1].x/2, w
		}
	}
	return middle, width
}

package geo

import "github.com/paulmach/orb"

// EachPoint calls fn with each vertex of g, the closing ones of rings too,
// until fn returns false.
func EachPoint(g orb.Geometry, fn func(orb.Point) bool) { eachPoint(g, fn) }

func eachPoint(g orb.Geometry, fn func(orb.Point) bool) bool {
	switch g := g.(type) {
	case orb.Point:
		return fn(g)
	case orb.MultiPoint:
		return eachOf(g, fn)
	case orb.LineString:
		return eachOf(g, fn)
	case orb.Ring:
		return eachOf(g, fn)
	case orb.MultiLineString:
		return eachIn(g, fn)
	case orb.Polygon:
		return eachIn(g, fn)
	case orb.MultiPolygon:
		return eachIn(g, fn)
	case orb.Collection:
		return eachIn(g, fn)
	case orb.Bound:
		return eachIn(g.ToPolygon(), fn)
	}
	return true
}

func eachOf(points []orb.Point, fn func(orb.Point) bool) bool {
	for _, p := range points {
		if !fn(p) {
			return false
		}
	}
	return true
}

func eachIn[G orb.Geometry](members []G, fn func(orb.Point) bool) bool {
	for _, g := range members {
		if !eachPoint(g, fn) {
			return false
		}
	}
	return true
}

// SwapAxes is a copy of g with x and y exchanged; g is left alone.
func SwapAxes(g orb.Geometry) orb.Geometry {
	switch g := g.(type) {
	case orb.Point:
		return swap(g)
	case orb.MultiPoint:
		return orb.MultiPoint(swapAll(g))
	case orb.LineString:
		return orb.LineString(swapAll(g))
	case orb.Ring:
		return orb.Ring(swapAll(g))
	case orb.MultiLineString:
		return orb.MultiLineString(swapIn(g))
	case orb.Polygon:
		return orb.Polygon(swapIn(g))
	case orb.MultiPolygon:
		return orb.MultiPolygon(swapIn(g))
	case orb.Collection:
		return orb.Collection(swapIn(g))
	case orb.Bound:
		return orb.Bound{Min: swap(g.Min), Max: swap(g.Max)}
	}
	return nil
}

func swap(p orb.Point) orb.Point { return orb.Point{p[1], p[0]} }

func swapAll(points []orb.Point) []orb.Point {
	if points == nil {
		return nil
	}
	swapped := make([]orb.Point, len(points))
	for i, p := range points {
		swapped[i] = swap(p)
	}
	return swapped
}

func swapIn[G orb.Geometry](members []G) []G {
	if members == nil {
		return nil
	}
	swapped := make([]G, len(members))
	for i, g := range members {
		// A nil member of a collection stays nil.
		if s, ok := SwapAxes(g).(G); ok {
			swapped[i] = s
		}
	}
	return swapped
}

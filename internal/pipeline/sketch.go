package pipeline

import (
	"context"
	"encoding/json"
	"math"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/project"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
)

// maxSketch bounds the points of a sketch; a larger geometry is thinned out.
const maxSketch = 1500

// Sketch draws the coordinates of an event as they were sent, for looking at and
// nothing else: also what is no legal geometry, such as a ring that is not closed.
// It is a GeoJSON geometry in degrees, x = longitude; nil, and a note that says
// why, where the coordinates can't be drawn. maxDecoded bounds the decoded body.
func (l Locator) Sketch(ctx context.Context, e *dlq.Event, maxDecoded int64) (geometry json.RawMessage, note string) {
	envelope, err := openEnvelope(e, maxDecoded)
	if err != nil {
		return nil, ""
	}
	doc, err := parse(envelope)
	if err != nil {
		return nil, ""
	}
	sent := doc.Geometry
	if sent == nil {
		sent = doc.Sketch
	}
	if sent == nil {
		return nil, ""
	}
	r := &run{Pipeline: &Pipeline{PostGIS: l.PostGIS}, event: e, doc: doc, claim: resolveClaims(e, doc)}
	if r.claim.swap {
		sent = geo.SwapAxes(sent)
	}
	lines := thinned(sent)
	note = "as sent, in " + r.claimName()
	if r.claim.err == nil && r.claim.crs.SRID != sridWGS84 {
		if lines, err = r.reproject(ctx, lines); err != nil {
			return nil, "The coordinates can't be drawn: " + err.(*failure).text + "."
		}
	}
	if !degrees(lines) {
		return nil, "The coordinates are no degrees, so they can't be drawn as they were sent."
	}
	text, err := json.Marshal(geometryObject(homeward(lines)))
	if err != nil {
		return nil, ""
	}
	return text, note
}

func (r *run) claimName() string {
	switch {
	case r.claim.err != nil:
		return "an unknown CRS, taken for degrees"
	case r.claim.text == "":
		return "EPSG:4326, since none is claimed"
	}
	return r.claimText()
}

// maxWinding is how far longitudes may run round and round the world, in degrees.
const maxWinding = 3600

// degrees reports whether all points are longitudes and latitudes, however often
// round the world.
func degrees(g orb.Geometry) bool {
	ok := true
	geo.EachPoint(g, func(p orb.Point) bool {
		ok = math.Abs(p.X()) <= maxWinding && math.Abs(p.Y()) <= 90
		return ok
	})
	return ok
}

// homeward moves points and lines by whole turns, so that their middle lies between
// -180 and 180 degrees.
func homeward(g orb.Geometry) orb.Geometry {
	turns := 360 * math.Round(g.Bound().Center().X()/360)
	if turns == 0 {
		return g
	}
	return project.Geometry(g, func(p orb.Point) orb.Point { return orb.Point{p.X() - turns, p.Y()} })
}

// thinned is a geometry as points and lines, which need not be valid, of at most
// about maxSketch points.
func thinned(g orb.Geometry) orb.Geometry {
	n := 0
	geo.EachPoint(g, func(orb.Point) bool { n++; return true })
	lines := &lineCollector{step: 1 + n/maxSketch}
	lines.add(g)
	if len(lines.points) == 1 && len(lines.lines) == 0 {
		return lines.points[0]
	}
	if len(lines.lines) == 0 {
		return lines.points
	}
	if len(lines.points) == 0 {
		return lines.lines
	}
	return orb.Collection{lines.points, lines.lines}
}

type lineCollector struct {
	step   int
	points orb.MultiPoint
	lines  orb.MultiLineString
}

func (c *lineCollector) add(g orb.Geometry) {
	switch g := g.(type) {
	case orb.Point:
		c.points = append(c.points, g)
	case orb.MultiPoint:
		for i := 0; i < len(g); i += c.step {
			c.points = append(c.points, g[i])
		}
	case orb.LineString:
		c.line(g)
	case orb.Ring:
		c.line(orb.LineString(g))
	case orb.MultiLineString:
		for _, l := range g {
			c.line(l)
		}
	case orb.Polygon:
		for _, r := range g {
			c.line(orb.LineString(r))
		}
	case orb.MultiPolygon:
		for _, p := range g {
			c.add(p)
		}
	case orb.Collection:
		for _, m := range g {
			c.add(m)
		}
	}
}

// line keeps every step-th point, and the last.
func (c *lineCollector) line(l orb.LineString) {
	switch len(l) {
	case 0:
		return
	case 1:
		c.points = append(c.points, l[0])
		return
	}
	var kept orb.LineString
	for i := 0; i < len(l)-1; i += c.step {
		kept = append(kept, l[i])
	}
	c.lines = append(c.lines, append(kept, l[len(l)-1]))
}

package pipeline

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/paulmach/orb"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
)

// Locator finds the place of a reported geotask, by the same rules as an event's,
// but never refuses: what can't be placed is kept as sent.
type Locator struct{ PostGIS PostGIS }

// Locate fills in a report's Place from its geometry (a GeoJSON object, or a
// string of WKT), else its tile, else its bounds. It keeps the geometry as sent
// beside it. Errors are of the database alone.
func (l Locator) Locate(ctx context.Context, r *dlq.Report) error {
	r.LocatedBy = dlq.LocatedByNone
	if len(r.Geometry) > 0 && !bytes.Equal(r.Geometry, []byte("null")) {
		if err := l.locateGeometry(ctx, r); err != nil || r.LocatedBy != dlq.LocatedByNone {
			return err
		}
	}
	switch {
	case r.Tile != nil:
		return l.locate(ctx, r, geo.TilePolygon(r.Tile.Z, r.Tile.X, r.Tile.Y), "", dlq.LocatedByTile)
	case r.Bounds != nil && r.Bounds[0] > r.Bounds[2] && !geographic(r.SrcCRS):
		return nil // west of east in metres is no extent
	case r.Bounds != nil:
		return l.locate(ctx, r, boundsGeometry(r.Bounds), r.SrcCRS, dlq.LocatedByTile)
	}
	return nil
}

func (l Locator) locateGeometry(ctx context.Context, r *dlq.Report) error {
	format, text := geo.GeoJSON, r.Geometry
	if r.Geometry[0] == '"' {
		var wkt string
		if json.Unmarshal(r.Geometry, &wkt) == nil {
			format, text = geo.WKT, []byte(wkt)
		}
	}
	doc, err := geo.Parse(format, text)
	if err != nil || doc.Geometry == nil {
		r.SourceGeometry = dlq.CleanText(string(text), 1<<20)
		return nil
	}
	if r.SourceWKB, err = geo.EncodeWKB(doc.Geometry); err != nil {
		r.SourceGeometry = dlq.CleanText(string(text), 1<<20)
		return nil
	}
	claims := doc.Claims
	if r.SrcCRS == "" && len(claims) > 0 {
		r.SrcCRS = claims[0]
	}
	return l.locateDocument(ctx, r, doc, dlq.LocatedByGeometry)
}

func (l Locator) locate(ctx context.Context, r *dlq.Report, g orb.Geometry, crs string, by dlq.LocatedBy) error {
	sent := *r
	sent.SrcCRS = crs
	if err := l.locateDocument(ctx, &sent, &geo.Document{Geometry: g}, by); err != nil {
		return err
	}
	r.Place = sent.Place
	return nil
}

func (l Locator) locateDocument(ctx context.Context, r *dlq.Report, doc *geo.Document, by dlq.LocatedBy) error {
	// x, y whatever the authority says: an OGC URI holds its order in Content-Crs
	// alone.
	event := &dlq.Event{}
	if r.SrcCRS != "" {
		event.InheritedCRS = []string{r.SrcCRS}
	}
	run := &run{Pipeline: &Pipeline{PostGIS: l.PostGIS}, event: event, doc: doc, claim: resolveClaims(event, doc)}
	placed, err := run.place(ctx)
	if f, ok := err.(*failure); ok && !f.transient {
		return nil // it does not fit: no place
	}
	if err != nil {
		return err
	}
	anchor, ok := geo.Anchor(placed.geometry)
	if !ok {
		return nil
	}
	if bytes.Equal(placed.wkb, r.SourceWKB) {
		placed.wkb = r.SourceWKB // one of them is enough
	}
	r.Place = dlq.Place{WKB: placed.wkb, Anchor: &[2]float64{anchor.X(), anchor.Y()}, LocatedBy: by}
	return nil
}

// geographic reports whether a claim is of degrees, as none is.
func geographic(claim string) bool {
	crs, _, err := geo.LookupCRS(claim)
	return claim == "" || (err == nil && crs.Geographic)
}

// boundsGeometry is the extent west, south, east, north; west > east crosses the
// antimeridian and is cut there (RFC 7946 §3.1.9, §5.2).
func boundsGeometry(b []float64) orb.Geometry {
	box := func(west, east float64) orb.Polygon {
		return orb.Bound{Min: orb.Point{west, b[1]}, Max: orb.Point{east, b[3]}}.ToPolygon()
	}
	if b[0] <= b[2] {
		return box(b[0], b[2])
	}
	return orb.MultiPolygon{box(b[0], 180), box(-180, b[2])}
}

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/paulmach/orb"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
	"geodlq/internal/store"
)

const (
	sridWGS84 = 4326
	// beyond is how far a longitude may run past the antimeridian: areas of use
	// are widened by as much.
	beyond = 6.0
)

// claim is the CRS that an event's claims come to.
type claim struct {
	crs  geo.CRS
	text string   // as claimed; empty: none, and RFC 7946 §4 says WGS 84
	swap bool     // the coordinates are in the authority's axis order, northing first
	err  *failure // unknown, or claims that disagree
}

// claimTexts lists all claims: Content-Crs, the collection's, the body's own.
func claimTexts(e *dlq.Event, doc *geo.Document) []string {
	var texts []string
	if e.ClaimedCRS != "" {
		texts = append(texts, e.ClaimedCRS)
	}
	texts = append(texts, e.InheritedCRS...)
	if doc != nil {
		texts = append(texts, doc.Claims...)
	}
	return texts
}

// resolveClaims wants every claim known, and all to be of one CRS. Order is x, y
// whatever the authority says, but for an OGC http URI in Content-Crs, whose axis
// order holds (OGC 18-058r1 §7.16).
func resolveClaims(e *dlq.Event, doc *geo.Document) claim {
	var c claim
	for i, text := range claimTexts(e, doc) {
		crs, authorityOrder, err := geo.LookupCRS(text)
		if err != nil {
			return claim{err: failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%v", err)}
		}
		if i == 0 {
			c.crs, c.text = crs, text
			c.swap = e.ClaimedCRS != "" && authorityOrder && crs.NorthingFirst
			continue
		}
		if !crs.Same(c.crs) {
			return claim{err: failed(dlq.StageCRS, dlq.ClassCRSMismatch, "two claims disagree: %.80s and %.80s",
				dlq.CleanText(c.text, 80), dlq.CleanText(text, 80))}
		}
	}
	if c.text == "" {
		c.crs, _, _ = geo.LookupCRS("EPSG:4326")
	}
	return c
}

// placed is a geometry in EPSG:4326, x = longitude.
type placed struct {
	geometry orb.Geometry // nil for a null or empty one
	wkb      []byte
	flawAt   *[2]float64
}

// place reprojects the document's geometry, if its coordinates fit the CRS: all
// of them lie in an area of use, widened, and come back from a round trip.
func (r *run) place(ctx context.Context) (*placed, error) {
	if r.claim.err != nil {
		return nil, r.claim.err
	}
	if r.doc.Geometry == nil {
		return &placed{}, nil
	}
	geometry, err := r.reproject(ctx, r.doc.Geometry)
	if err != nil {
		return nil, err
	}
	if geometry, err = r.wrap(ctx, geometry); err != nil {
		return nil, err
	}
	wkb, err := geo.EncodeWKB(geometry)
	if err != nil {
		return nil, failed(dlq.StageCRS, dlq.ClassUnknown, "%v", err)
	}
	return &placed{geometry: geometry, wkb: wkb}, nil
}

func (r *run) reproject(ctx context.Context, g orb.Geometry) (orb.Geometry, error) {
	if r.claim.crs.SRID == sridWGS84 {
		return g, r.fits(g)
	}
	wkb, err := geo.EncodeWKB(g)
	if err != nil {
		return nil, failed(dlq.StageCRS, dlq.ClassUnknown, "%v", err)
	}
	there, back, err := r.PostGIS.Transform(ctx, wkb, r.claim.crs.SRID)
	switch {
	case ctx.Err() != nil:
		f := failed(dlq.StageCRS, dlq.ClassUnknown, "the reprojection did not end in time")
		f.transient = true
		return nil, f
	case errors.Is(err, store.ErrUnknownSRID):
		return nil, failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%s is claimed, which PostGIS does not list: it may be deprecated", r.claimText())
	case errors.Is(err, store.ErrGeometry):
		return nil, failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%s is claimed, but the coordinates don't fit it: %v", r.claimText(), err)
	case err != nil:
		return nil, databaseFailure(dlq.StageCRS, err)
	}
	reprojected, err := geo.DecodeWKB(there)
	if err != nil {
		return nil, r.mismatch("they leave the Earth")
	}
	if err := r.fits(reprojected); err != nil {
		return nil, err
	}
	returned, err := geo.DecodeWKB(back)
	if err != nil || !comesBack(g, returned, r.claim.crs.Geographic) {
		return nil, r.mismatch("they don't come back from EPSG:4326 as they went")
	}
	return reprojected, nil
}

func (r *run) mismatch(why string) *failure {
	return failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%s is claimed, but the coordinates don't fit it: %s", r.claimText(), why)
}

// fits checks every point, in EPSG:4326, against the areas of use.
func (r *run) fits(g orb.Geometry) error {
	var misfit *failure
	geo.EachPoint(g, func(p orb.Point) bool {
		misfit = r.misfit(p)
		return misfit == nil
	})
	if misfit != nil {
		return misfit
	}
	return nil
}

func (r *run) misfit(p orb.Point) *failure {
	lon, lat := p.X(), p.Y()
	reprojected := r.claim.crs.SRID != sridWGS84
	switch {
	case math.IsNaN(lon) || math.IsNaN(lat) || math.IsInf(lon, 0) || math.IsInf(lat, 0):
		return r.mismatch("they leave the Earth")
	case reprojected && (math.Abs(lon) > 180+beyond || math.Abs(lat) > 90 || !r.claim.crs.Contains(lon, lat)):
		return r.mismatch("they lie outside its area of use")
	case math.Abs(lon) > 180+beyond:
		return failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%s, but x = %s lies outside -180…180", r.claimSaid(), ordinate(lon))
	case math.Abs(lat) > 90:
		return failed(dlq.StageCRS, dlq.ClassCRSMismatch, "%s, but y = %s lies outside -90…90", r.claimSaid(), ordinate(lat))
	}
	return nil
}

func (r *run) claimSaid() string {
	if r.claim.text == "" {
		return "no CRS is claimed, so EPSG:4326 holds"
	}
	return r.claimText() + " is claimed"
}

func (r *run) claimText() string { return dlq.CleanText(r.claim.text, 80) }

// wrap cuts what runs past the antimeridian.
func (r *run) wrap(ctx context.Context, g orb.Geometry) (orb.Geometry, error) {
	bound := g.Bound()
	if bound.Min.X() >= -180 && bound.Max.X() <= 180 {
		return g, nil
	}
	wkb, err := geo.EncodeWKB(g)
	if err != nil {
		return nil, failed(dlq.StageCRS, dlq.ClassUnknown, "%v", err)
	}
	wrapped, err := r.PostGIS.WrapLongitude(ctx, wkb)
	switch {
	case errors.Is(err, store.ErrGeometry):
		return nil, failed(dlq.StageCRS, dlq.ClassCRSMismatch, "it runs past the antimeridian and can't be cut there: %v", err)
	case err != nil:
		return nil, databaseFailure(dlq.StageCRS, err)
	}
	out, err := geo.DecodeWKB(wrapped)
	if err != nil {
		return nil, failed(dlq.StageCRS, dlq.ClassUnknown, "%v", err)
	}
	return out, nil
}

// comesBack compares two geometries point by point, within a millionth.
func comesBack(sent, returned orb.Geometry, geographic bool) bool {
	next, stop := iter.Pull(func(yield func(orb.Point) bool) { geo.EachPoint(returned, yield) })
	defer stop()
	same := true
	geo.EachPoint(sent, func(p orb.Point) bool {
		q, ok := next()
		same = ok && near(p.X(), q.X(), geographic) && near(p.Y(), q.Y(), geographic)
		return same
	})
	_, more := next()
	return same && !more
}

func near(a, b float64, geographic bool) bool {
	d := math.Abs(a - b)
	if geographic {
		d = math.Min(d, math.Abs(d-360)) // one meridian, two names
	}
	return d <= 1e-6*math.Max(1, math.Abs(a))
}

// ordinate is a number as people write it: seven decimals at most (a centimetre, of
// degrees), without an exponent for usual sizes.
func ordinate(v float64) string {
	if math.Abs(v) < 1e15 {
		text := strconv.FormatFloat(v, 'f', 7, 64)
		return strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func ordinates(x, y float64) string { return fmt.Sprintf("%s %s", ordinate(x), ordinate(y)) }

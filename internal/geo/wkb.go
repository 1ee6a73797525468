package geo

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/encoding/wkb"
)

// Flags of PostGIS's EWKB. ISO (OGC 06-103r4 §8.2.3) adds 1000 for Z, 2000 for
// M and 3000 for both instead; a reader meets each, and both at once.
const (
	ewkbZ    = 0x80000000
	ewkbM    = 0x40000000
	ewkbSRID = 0x20000000
)

// Type codes of WKB, without dimension.
const (
	wkbPoint = iota + 1
	wkbLineString
	wkbPolygon
	wkbMultiPoint
	wkbMultiLineString
	wkbMultiPolygon
	wkbCollection
	wkbLastKnown = 25 // curves, surfaces and solids: named by ISO 13249-3, not read here
)

// parseWKB reads binary WKB or EWKB, of either byte order in each member.
func parseWKB(body []byte) (*Document, *Error) {
	r := wkbReader{b: body}
	return r.document()
}

type wkbReader struct {
	b     []byte
	pos   int
	order binary.ByteOrder
	findings
}

func (r *wkbReader) document() (*Document, *Error) {
	g, err := r.whole()
	if err != nil {
		return nil, err
	}
	return r.findings.document(g), nil
}

func (r *wkbReader) whole() (orb.Geometry, *Error) {
	g, err := r.geometry(0, 0)
	if err != nil {
		return nil, err
	}
	if r.pos < len(r.b) {
		return nil, malformed(r.pos, "%d bytes after the end of the geometry", len(r.b)-r.pos)
	}
	return g, nil
}

// need checks that count items of at least size bytes can be there, before
// anything is made of the count.
func (r *wkbReader) need(count uint32, size int) *Error {
	if left := len(r.b) - r.pos; uint64(count)*uint64(size) > uint64(left) {
		return malformed(r.pos, "WKB is cut off: %d bytes are left", left)
	}
	return nil
}

func (r *wkbReader) uint32() (uint32, *Error) {
	if err := r.need(1, 4); err != nil {
		return 0, err
	}
	v := r.order.Uint32(r.b[r.pos:])
	r.pos += 4
	return v, nil
}

// count reads a number of items of at least size bytes each.
func (r *wkbReader) count(size int) (int, *Error) {
	n, err := r.uint32()
	if err != nil {
		return 0, err
	}
	return int(n), r.need(n, size)
}

// header reads byte order, type and SRID; width is the bytes of a position.
func (r *wkbReader) header() (kind, width int, err *Error) {
	start := r.pos
	if err := r.need(1, 5); err != nil {
		return 0, 0, err
	}
	switch r.b[r.pos] {
	case 0:
		r.order = binary.BigEndian
	case 1:
		r.order = binary.LittleEndian
	default:
		return 0, 0, malformed(start, "no WKB byte order: %d", r.b[r.pos])
	}
	r.pos++
	code, err := r.uint32()
	if err != nil {
		return 0, 0, err
	}
	if code&ewkbSRID != 0 {
		srid, err := r.uint32()
		if err != nil {
			return 0, 0, err
		}
		r.claimSRID(int64(int32(srid)))
	}
	iso := code &^ (ewkbZ | ewkbM | ewkbSRID)
	kind = int(iso % 1000)
	if kind == 0 || kind > wkbLastKnown || iso >= 4000 {
		return 0, 0, malformed(start, "no WKB geometry type: %d", code)
	}
	if kind > wkbCollection {
		return 0, 0, unsupported(start, "WKB geometry type %d, a curve or surface, is not read here", kind)
	}
	width = 16
	if code&ewkbZ != 0 || iso/1000 == 1 || iso/1000 == 3 {
		width += 8
	}
	if code&ewkbM != 0 || iso/1000 == 2 || iso/1000 == 3 {
		width += 8
	}
	return kind, width, nil
}

// geometry reads one geometry of kind want, or of any kind if want is 0; nil is
// an empty one. depth counts the collections around it.
func (r *wkbReader) geometry(want, depth int) (orb.Geometry, *Error) {
	start := r.pos
	kind, width, err := r.header()
	if err != nil {
		return nil, err
	}
	if want != 0 && kind != want {
		return nil, malformed(start, "a WKB member of type %d where type %d is needed", kind, want)
	}
	switch kind {
	case wkbPoint:
		return r.point(width)
	case wkbLineString:
		at := r.pos
		points, err := r.points(width)
		if len(points) > 0 {
			err = r.line(at, points)
		}
		return filled(orb.LineString(points), err)
	case wkbPolygon:
		rings, err := r.rings(width)
		return filled(orb.Polygon(rings), err)
	case wkbMultiPoint:
		points, err := members[orb.Point](r, wkbPoint, depth)
		return filled(orb.MultiPoint(points), err)
	case wkbMultiLineString:
		lines, err := members[orb.LineString](r, wkbLineString, depth)
		return filled(orb.MultiLineString(lines), err)
	case wkbMultiPolygon:
		polygons, err := members[orb.Polygon](r, wkbPolygon, depth)
		return filled(orb.MultiPolygon(polygons), err)
	}
	if depth >= maxCollectionDepth {
		return nil, malformed(start, "geometry collections nested deeper than %d levels", maxCollectionDepth)
	}
	all, err := members[orb.Geometry](r, 0, depth+1)
	return filled(orb.Collection(all), err)
}

// members reads a count and as many geometries; empty ones are left out.
func members[G orb.Geometry](r *wkbReader, kind, depth int) ([]G, *Error) {
	const smallest = 9 // a header and a count
	n, err := r.count(smallest)
	if err != nil {
		return nil, err
	}
	var all []G
	for range n {
		g, err := r.geometry(kind, depth)
		if err != nil {
			return nil, err
		}
		if g != nil {
			all = append(all, g.(G))
		}
	}
	return all, nil
}

// point is nil for the NaN NaN point, the spelling of POINT EMPTY in WKB.
func (r *wkbReader) point(width int) (orb.Geometry, *Error) {
	if err := r.need(1, width); err != nil {
		return nil, err
	}
	at := r.pos
	p := r.xy(width)
	if math.IsNaN(p[0]) && math.IsNaN(p[1]) {
		return nil, nil
	}
	return orNil[orb.Point](p, r.position(at, p))
}

func (r *wkbReader) points(width int) ([]orb.Point, *Error) {
	n, err := r.count(width)
	if err != nil {
		return nil, err
	}
	points := make([]orb.Point, n)
	for i := range points {
		at := r.pos
		points[i] = r.xy(width)
		if err := r.position(at, points[i]); err != nil {
			return nil, err
		}
	}
	return points, nil
}

func (r *wkbReader) rings(width int) ([]orb.Ring, *Error) {
	n, err := r.count(4)
	if err != nil {
		return nil, err
	}
	if n > maxPositions {
		return nil, malformed(r.pos, "more than %d rings", maxPositions)
	}
	rings := make([]orb.Ring, n)
	for i := range rings {
		at := r.pos
		points, err := r.points(width)
		if err != nil {
			return nil, err
		}
		rings[i] = points
		if err := r.ring(at, points); err != nil {
			return nil, err
		}
	}
	return rings, nil
}

// xy reads one position whose bytes are known to be there. What Z and M hold is
// not looked at: GEOS pads a missing Z with NaN.
func (r *wkbReader) xy(width int) orb.Point {
	x := math.Float64frombits(r.order.Uint64(r.b[r.pos:]))
	y := math.Float64frombits(r.order.Uint64(r.b[r.pos+8:]))
	r.pos += width
	return orb.Point{x, y}
}

// ErrNoGeometry is what EncodeWKB and DecodeWKB give where there is nothing to
// encode, or nothing encoded but an empty geometry.
var ErrNoGeometry = errors.New("no geometry")

// EncodeWKB gives g as little-endian WKB, without SRID.
func EncodeWKB(g orb.Geometry) ([]byte, error) {
	if g == nil {
		return nil, ErrNoGeometry
	}
	return wkb.Marshal(g, binary.LittleEndian)
}

// DecodeWKB reads what EncodeWKB or PostGIS's ST_AsBinary wrote, and EWKB, with
// the same strictness as Parse. Rings and lines are taken as they are; ordinates
// that are not finite are an *Error of stage validate.
func DecodeWKB(b []byte) (orb.Geometry, error) {
	r := wkbReader{b: b}
	g, err := r.whole()
	switch {
	case err != nil:
		return nil, err
	case r.infinite:
		return nil, r.flaw
	case g == nil:
		return nil, ErrNoGeometry
	}
	return g, nil
}

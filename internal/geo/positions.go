package geo

import (
	"strconv"

	"github.com/paulmach/orb"
)

// positions reads a "coordinates" value that the scanner went over before, so
// that only its shape is in question, not its syntax. A wrong shape is
// parse/invalid_geometry; orb would read most of them as zeros.
type positions struct {
	b   []byte
	pos int
	*findings
}

// read gives the geometry of a type other than GeometryCollection, nil for an
// empty one (RFC 7946 §3.1).
func (p *positions) read(kind string) (orb.Geometry, *Error) {
	if p.b[p.pos] != '[' {
		return nil, notGeometry(p.pos, "coordinates hold %s, an array is needed", kindOf(p.b[p.pos]))
	}
	if p.emptyArray() {
		return nil, nil
	}
	switch kind {
	case "Point":
		return orNil[orb.Point](p.position())
	case "MultiPoint":
		return orNil[orb.MultiPoint](elements(p, (*positions).position))
	case "LineString":
		return orNil[orb.LineString](p.lineString())
	case "MultiLineString":
		return orNil[orb.MultiLineString](elements(p, (*positions).lineString))
	case "Polygon":
		return orNil[orb.Polygon](p.polygon())
	default:
		return orNil[orb.MultiPolygon](elements(p, (*positions).polygon))
	}
}

// orNil keeps a nil slice from becoming a geometry that is not nil.
func orNil[G orb.Geometry](g G, err *Error) (orb.Geometry, *Error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (p *positions) emptyArray() bool {
	s := scanner{b: p.b, pos: p.pos + 1}
	s.space()
	return s.peek() == ']'
}

// elements reads an array by one function for each element.
func elements[T any](p *positions, element func(*positions) (T, *Error)) ([]T, *Error) {
	if c := p.b[p.pos]; c != '[' {
		return nil, notGeometry(p.pos, "coordinates nested wrongly: %s where an array is needed", kindOf(c))
	}
	p.pos++
	all := make([]T, 0, p.count())
	for p.more() {
		one, err := element(p)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// count is how many elements the rest of the array has, if all of them are arrays, so that
// a large one is not copied as it grows; at most maxPositions.
func (p *positions) count() int {
	n, depth := 0, 0
	for _, c := range p.b[p.pos:] {
		switch c {
		case '[':
			if depth++; depth == 1 {
				n++
			}
		case ']':
			if depth--; depth < 0 {
				return min(n, maxPositions)
			}
		}
	}
	return 0
}

// more moves to the next element, or over the end of the array.
func (p *positions) more() bool {
	for isSpace(p.b[p.pos]) || p.b[p.pos] == ',' {
		p.pos++
	}
	if p.b[p.pos] == ']' {
		p.pos++
		return false
	}
	return true
}

func (p *positions) lineString() (orb.LineString, *Error) {
	at := p.pos
	points, err := elements(p, (*positions).position)
	if err == nil {
		err = p.line(at, points)
	}
	return points, err
}

func (p *positions) linearRing() (orb.Ring, *Error) {
	at := p.pos
	points, err := elements(p, (*positions).position)
	if err == nil {
		err = p.ring(at, points)
	}
	return points, err
}

func (p *positions) polygon() (orb.Polygon, *Error) {
	at := p.pos
	rings, err := elements(p, (*positions).linearRing)
	if err == nil && len(rings) == 0 {
		p.fault(at, "a polygon without rings")
		err = p.findings.count(at)
	}
	return rings, err
}

// position reads one position: two numbers or more, of which the first two are
// kept (RFC 7946 §3.1.1).
func (p *positions) position() (orb.Point, *Error) {
	at := p.pos
	if c := p.b[at]; c != '[' {
		return orb.Point{}, notGeometry(at, "coordinates nested wrongly: %s where a position is needed", kindOf(c))
	}
	p.pos++
	var xy orb.Point
	n := 0
	for p.more() {
		v, err := p.ordinate()
		if err != nil {
			return xy, err
		}
		if n < 2 {
			xy[n] = v
		}
		n++
	}
	if n < 2 {
		return xy, notGeometry(at, "a position of fewer than two numbers")
	}
	return xy, p.findings.position(at, xy)
}

func (p *positions) ordinate() (float64, *Error) {
	at := p.pos
	if c := p.b[at]; c != '-' && !isDigit(c) {
		return 0, notGeometry(at, "%s where a number is needed", kindOf(c))
	}
	for p.pos < len(p.b) && isNumeric(p.b[p.pos]) {
		p.pos++
	}
	v, err := strconv.ParseFloat(string(p.b[at:p.pos]), 64)
	if err != nil {
		return 0, notGeometry(at, "a number beyond the range of float64")
	}
	return v, nil
}

func isNumeric(c byte) bool {
	return isDigit(c) || c == '.' || c == '-' || c == '+' || c|0x20 == 'e'
}

package geo

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"geodlq/internal/dlq"

	"github.com/paulmach/orb"
)

// findings gathers what a reader meets on its way and need not stop at.
type findings struct {
	flaw      *Error
	claims    []string
	positions int
	infinite  bool // some x or y is not a finite number
}

// fault records a flaw; the first one is kept.
func (f *findings) fault(offset int, reason string) {
	if f.flaw == nil {
		f.flaw = &Error{dlq.StageValidate, dlq.ClassInvalidGeometry, reason, offset}
	}
}

// position counts one and checks that its x and y are finite.
func (f *findings) position(offset int, p orb.Point) *Error {
	if !finite(p) {
		f.infinite = true
		f.fault(offset, "an ordinate is not a finite number")
	}
	return f.count(offset)
}

// count counts a position, or a part without any, which takes as much memory.
func (f *findings) count(offset int) *Error {
	if f.positions++; f.positions > maxPositions {
		return malformed(offset, "more than %d positions", maxPositions)
	}
	return nil
}

// line checks a line that is not the whole geometry's emptiness.
func (f *findings) line(offset int, ls orb.LineString) *Error {
	switch len(ls) {
	case 0:
		f.fault(offset, "a line without positions")
		return f.count(offset)
	case 1:
		f.fault(offset, "a line of one position, two are needed")
	}
	return nil
}

// ring checks what a linear ring needs before it can be stored as WKB (RFC 7946
// §3.1.6, OGC 06-103r4 §6.1.11). Topology is left to PostGIS.
func (f *findings) ring(offset int, r orb.Ring) *Error {
	switch n := len(r); {
	case n == 0:
		f.fault(offset, "a ring without positions")
		return f.count(offset)
	case r[0] != r[n-1]:
		f.fault(offset, "a ring that is not closed")
	case n < 4:
		f.fault(offset, "a ring of fewer than four positions")
	}
	return nil
}

// claim keeps a CRS claim as written, within bounds, and as text that a
// database takes.
func (f *findings) claim(s string) {
	if len(s) > maxClaimBytes {
		cut := maxClaimBytes
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(f.claims) < maxClaims && !slices.Contains(f.claims, s) {
		f.claims = append(f.claims, s)
	}
}

// document makes the outcome of a reader that read g; nil is an empty geometry.
func (f *findings) document(g orb.Geometry) *Document {
	doc := &Document{Claims: f.claims}
	f.settle(doc, g)
	return doc
}

func (f *findings) settle(doc *Document, g orb.Geometry) {
	switch {
	case f.flaw == nil:
		doc.Geometry, doc.Empty = g, g == nil
	case f.infinite:
		doc.Flaw = f.flaw
	default:
		doc.Flaw, doc.Sketch = f.flaw, g
	}
}

func finite(p orb.Point) bool {
	// A difference with itself is NaN for NaN and for both infinities.
	return p[0]-p[0] == 0 && p[1]-p[1] == 0 && !math.IsNaN(p[0])
}

// Package geo turns bytes into geometries, in front of orb: GeoJSON (RFC 7946),
// WKT and WKB (OGC 06-103r4) with PostGIS's EWKT and EWKB, the CRS claims made
// in them, and the areas of use of the CRSs claimed.
//
// The readers are strict, because orb and PostGIS are not: orb takes
// [null,null] for POINT(0 0), ST_GeomFromGeoJSON takes trailing commas. Nothing
// here does I/O, and no input makes it panic or allocate out of proportion.
//
// Coordinates are x, y as sent: no axis order is applied and nothing is
// transformed. Z and M are dropped.
package geo

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"geodlq/internal/dlq"

	"github.com/paulmach/orb"
)

// Format is the encoding the envelope stage settled on.
type Format int

// The formats. WKT stands for every text form: WKT, EWKT and hex (E)WKB.
const (
	GeoJSON Format = iota + 1
	WKT
	WKB
)

// Limits that keep one hostile body from taking the process with it. A body
// beyond one of them is parse/malformed_payload.
const (
	maxCollectionDepth = 128       // GeometryCollections within one another
	maxJSONDepth       = 512       // objects and arrays within one another
	maxPositions       = 2_000_000 // positions in one geometry: 32 MB of WKB
	maxFeatures        = 1_000_000 // features in one collection
	maxClaims          = 16        // distinct CRS claims kept of one body
	maxClaimBytes      = 200       // bytes kept of one claim
)

// Document is what one body said.
type Document struct {
	// Geometry is x, y as sent. It is nil for a null or empty geometry, for a
	// collection of features, and wherever Flaw is set.
	Geometry orb.Geometry
	// Empty tells a legal empty geometry: POLYGON EMPTY, "coordinates":[], the
	// NaN NaN point of WKB. It is processed like a null one.
	Empty bool
	// Claims are the CRS claims in the body as written, without repetitions: at
	// most 16, each cut at 200 bytes, all valid UTF-8 without NUL. An EWKT or
	// EWKB SRID n becomes "EPSG:n"; a crs member that names nothing is kept as
	// raw JSON, which LookupCRS does not know. Of a FeatureCollection they are
	// those of the collection itself: a feature's own come with its span.
	Claims []string
	// Feature tells a Feature from a bare geometry.
	Feature bool
	// ID is the exact JSON of a Feature's id, nil if absent or null.
	ID []byte
	// Properties is the exact JSON of a Feature's properties, nil if absent or null.
	Properties []byte
	// Collection tells a FeatureCollection; Features then holds the byte range
	// of each feature in the body given to Parse.
	Collection bool
	Features   []Span
	// Flaw is set where the body was readable but holds no legal geometry
	// (stage validate): an unclosed, short or empty ring, a line of one point,
	// NaN. PostGIS refuses such shapes as WKB, so Geometry is nil.
	Flaw *Error
	// Sketch is a flawed geometry as far as it can be drawn: for display and
	// for guesses, never to be stored. Nil without Flaw, and nil where an
	// ordinate is not finite.
	Sketch orb.Geometry
}

// Span is a half-open byte range of the body given to Parse.
type Span struct{ Start, End int }

func (s Span) absent() bool { return s.End == 0 }

// Error tells what is wrong with a body. Its text is for people: valid UTF-8,
// no control characters, and at most a few bytes of the payload.
type Error struct {
	Stage  dlq.Stage
	Class  dlq.Class
	Reason string
	Offset int // byte offset in the body, -1 if there is none to tell
}

// Error gives the reason, after the offset if there is one.
func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Reason
	}
	return fmt.Sprintf("offset %d: %s", e.Offset, e.Reason)
}

func malformed(offset int, format string, args ...any) *Error {
	return &Error{dlq.StageParse, dlq.ClassMalformedPayload, fmt.Sprintf(format, args...), offset}
}

func unsupported(offset int, format string, args ...any) *Error {
	return &Error{dlq.StageParse, dlq.ClassUnsupportedFormat, fmt.Sprintf(format, args...), offset}
}

func notGeometry(offset int, format string, args ...any) *Error {
	return &Error{dlq.StageParse, dlq.ClassInvalidGeometry, fmt.Sprintf(format, args...), offset}
}

// Parse reads body as f. Its error is always an *Error of stage parse. The
// document's byte slices alias body.
func Parse(f Format, body []byte) (*Document, error) {
	var (
		doc *Document
		err *Error
	)
	switch f {
	case GeoJSON:
		doc, err = parseGeoJSON(body)
	case WKT:
		doc, err = parseText(body)
	case WKB:
		doc, err = parseWKB(body)
	default:
		err = unsupported(-1, "no such format: %d", int(f))
	}
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// checkText tells text in no encoding that is read here. RFC 8259 §8.1 and WKT
// in practice both want UTF-8.
func checkText(body []byte) *Error {
	switch {
	case bytes.HasPrefix(body, []byte{0x1f, 0x8b}):
		return malformed(0, "gzip data without Content-Encoding")
	case bytes.HasPrefix(body, []byte{0xff, 0xfe}), bytes.HasPrefix(body, []byte{0xfe, 0xff}):
		return malformed(0, "UTF-16 text, UTF-8 is needed")
	case utf8.Valid(body):
		return nil
	}
	at := 0
	for at < len(body) {
		r, n := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return malformed(at, "not UTF-8 text: byte 0x%02x", body[at])
}

// checkMarkup tells XML, which is a format we can't read, from HTML, which is
// a proxy's error page and no spatial data at all.
func checkMarkup(body []byte, at int) *Error {
	if at >= len(body) || body[at] != '<' {
		return nil
	}
	head := bytes.ToLower(body[at:min(len(body), at+512)])
	switch {
	case bytes.Contains(head, []byte("<!doctype html")), bytes.Contains(head, []byte("<html")):
		return malformed(at, "HTML, not spatial data")
	case bytes.Contains(head, []byte("<kml")):
		return unsupported(at, "KML is not read here")
	case bytes.HasPrefix(head, []byte("<?xml")), len(head) > 1 && (head[1] == '!' || isLetter(head[1])):
		return unsupported(at, "XML is not read here")
	}
	return malformed(at, "unexpected '<'")
}

// textStart is where the text begins, behind a byte order mark.
func textStart(body []byte) int {
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return 3
	}
	return 0
}

// quoteByte shows one byte of a payload in a message.
func quoteByte(c byte) string {
	if c > 0x20 && c < 0x7f {
		return "'" + string(rune(c)) + "'"
	}
	return fmt.Sprintf("byte 0x%02x", c)
}

func isSpace(c byte) bool  { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

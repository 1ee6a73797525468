package geo

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/paulmach/orb"
)

// parseText reads WKT (OGC 06-103r4 §7), EWKT ("SRID=n;" before it), or hex
// (E)WKB as psql prints it. Whitespace around it does not matter.
func parseText(body []byte) (*Document, *Error) {
	if err := checkText(body); err != nil {
		return nil, err
	}
	r := wktReader{b: body, pos: textStart(body)}
	r.space()
	if err := checkMarkup(body, r.pos); err != nil {
		return nil, err
	}
	if c := r.peek(); c == '{' || c == '[' {
		return nil, malformed(r.pos, "JSON labelled as text")
	}
	if err := r.srid(); err != nil {
		return nil, err
	}
	if hexed := r.hex(); hexed != nil {
		return parseHex(hexed, r.pos, r.findings)
	}
	g, err := r.geometry(0)
	if err != nil {
		return nil, err
	}
	if r.space(); r.pos < len(r.b) {
		return nil, malformed(r.pos, "%s after the end of the geometry", quoteByte(r.b[r.pos]))
	}
	return r.document(g), nil
}

type wktReader struct {
	b    []byte
	pos  int
	dims int // ordinates in a position, 0 until known; one for the whole text
	findings
}

func (r *wktReader) space() {
	for r.pos < len(r.b) && isSpace(r.b[r.pos]) {
		r.pos++
	}
}

func (r *wktReader) peek() byte {
	if r.pos < len(r.b) {
		return r.b[r.pos]
	}
	return 0
}

func (r *wktReader) unexpected(want string) *Error {
	if r.pos >= len(r.b) {
		return malformed(r.pos, "unexpected end of WKT, %s is needed", want)
	}
	return malformed(r.pos, "unexpected %s in WKT, %s is needed", quoteByte(r.b[r.pos]), want)
}

// take goes over c, with space before it, if it is next.
func (r *wktReader) take(c byte) bool {
	r.space()
	if r.peek() != c || r.pos >= len(r.b) {
		return false
	}
	r.pos++
	return true
}

// word takes the letters that are next, in upper case.
func (r *wktReader) word() string {
	r.space()
	start := r.pos
	for isLetter(r.peek()) {
		r.pos++
	}
	return strings.ToUpper(string(r.b[start:r.pos]))
}

// takeWord takes the next word if it is w.
func (r *wktReader) takeWord(w string) bool {
	start := r.pos
	if r.word() == w {
		return true
	}
	r.pos = start
	return false
}

// srid reads the prefix of EWKT, whose number is bare: "SRID=4326;".
func (r *wktReader) srid() *Error {
	const prefix = "SRID"
	if rest := r.b[r.pos:]; len(rest) < len(prefix) || !strings.EqualFold(string(rest[:len(prefix)]), prefix) {
		return nil
	}
	r.pos += len(prefix)
	if r.peek() != '=' {
		return r.unexpected("'='")
	}
	r.pos++
	start := r.pos
	if r.peek() == '-' {
		r.pos++
	}
	for isDigit(r.peek()) {
		r.pos++
	}
	n, err := strconv.ParseInt(string(r.b[start:r.pos]), 10, 64)
	if err != nil {
		return malformed(start, "SRID is not a bare integer")
	}
	if r.peek() != ';' {
		return r.unexpected("';' after the SRID")
	}
	r.pos++
	r.space()
	r.claimSRID(n)
	return nil
}

// claimSRID takes an SRID for a claim; 0 is PostGIS's word for none.
func (f *findings) claimSRID(n int64) {
	if n != 0 {
		f.claim("EPSG:" + strconv.FormatInt(n, 10))
	}
}

// hex is the rest of the text if it is hex WKB, else nil.
func (r *wktReader) hex() []byte {
	rest := r.b[r.pos:]
	for len(rest) > 0 && isSpace(rest[len(rest)-1]) {
		rest = rest[:len(rest)-1]
	}
	if len(rest) < 2 || len(rest)%2 != 0 || rest[0] != '0' || rest[1] != '0' && rest[1] != '1' {
		return nil
	}
	for _, c := range rest {
		if !isHex(c) {
			return nil
		}
	}
	return rest
}

// parseHex reads WKB from hex that begins at start; offsets are of the text.
func parseHex(text []byte, start int, found findings) (*Document, *Error) {
	b := make([]byte, len(text)/2)
	if _, err := hex.Decode(b, text); err != nil {
		return nil, malformed(start, "broken hex")
	}
	r := wkbReader{b: b, findings: found}
	doc, err := r.document()
	if err == nil {
		err, doc.Flaw = nil, atText(doc.Flaw, start)
	}
	return doc, atText(err, start)
}

func atText(err *Error, start int) *Error {
	if err == nil || err.Offset < 0 {
		return err
	}
	moved := *err
	moved.Offset = start + 2*err.Offset
	return &moved
}

// geometry reads one tagged geometry; nil is an empty one. depth counts the
// collections around it.
func (r *wktReader) geometry(depth int) (orb.Geometry, *Error) {
	kind, err := r.tag()
	if err != nil {
		return nil, err
	}
	if r.takeWord("EMPTY") {
		return nil, nil
	}
	switch kind {
	case "POINT":
		return orNil[orb.Point](r.parenthesized())
	case "LINESTRING":
		return orNil[orb.LineString](r.lineString())
	case "POLYGON":
		return orNil[orb.Polygon](r.polygon())
	case "MULTIPOINT":
		return r.multiPoint()
	case "MULTILINESTRING":
		lines, err := texts(r, (*wktReader).lineString)
		return filled(orb.MultiLineString(withoutEmpty(lines)), err)
	case "MULTIPOLYGON":
		polygons, err := texts(r, (*wktReader).polygon)
		return filled(orb.MultiPolygon(withoutEmpty(polygons)), err)
	}
	return r.collection(depth)
}

// filled is g, or nil if nothing is left in it.
func filled[S ~[]E, E any](g S, err *Error) (orb.Geometry, *Error) {
	if err != nil || len(g) == 0 {
		return nil, err
	}
	return any(g).(orb.Geometry), nil
}

// withoutEmpty drops the EMPTY members of a multi geometry, which are legal
// and hold nothing.
func withoutEmpty[S ~[]E, E any](members []S) []S {
	var all []S
	for _, m := range members {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// tag reads the type and the dimension after it: "POINT", "POINT ZM", "POINTZM".
func (r *wktReader) tag() (string, *Error) {
	r.space()
	start := r.pos
	kind := r.word()
	if kind == "" {
		return "", r.unexpected("a geometry type")
	}
	dimension := ""
	if !isWKTType(kind) {
		base := strings.TrimRight(kind, "ZM")
		kind, dimension = base, kind[len(base):]
	}
	if isCurve(kind) {
		return "", unsupported(start, "%s is not read here", kind)
	}
	if !isWKTType(kind) {
		return "", malformed(start, "no WKT geometry type: %s", quoteShort(kind+dimension))
	}
	if dimension == "" {
		dimension = r.dimension()
	}
	n, ok := map[string]int{"": 0, "Z": 3, "M": 3, "ZM": 4}[dimension]
	if !ok {
		return "", malformed(start, "no WKT geometry type: %s", quoteShort(kind+dimension))
	}
	if n == 0 {
		return kind, nil
	}
	return kind, r.dimensions(start, n)
}

func (r *wktReader) dimension() string {
	start := r.pos
	switch w := r.word(); w {
	case "Z", "M", "ZM":
		return w
	}
	r.pos = start
	return ""
}

// dimensions holds a text to one number of ordinates. A stray blank in a number
// shows as one position that has more of them than the others.
func (r *wktReader) dimensions(offset, n int) *Error {
	if r.dims == 0 {
		r.dims = n
	}
	if r.dims != n {
		return malformed(offset, "positions of %d and of %d ordinates in one geometry", r.dims, n)
	}
	return nil
}

func isWKTType(w string) bool {
	switch w {
	case "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION":
		return true
	}
	return false
}

// isCurve tells types of WKT that exist and have no form in GeoJSON or orb.
func isCurve(w string) bool {
	switch w {
	case "CIRCULARSTRING", "COMPOUNDCURVE", "CURVEPOLYGON", "MULTICURVE", "MULTISURFACE",
		"CURVE", "SURFACE", "TIN", "TRIANGLE", "POLYHEDRALSURFACE", "LINEARRING":
		return true
	}
	return false
}

// texts reads "(a, b, …)" by one function for each member.
func texts[T any](r *wktReader, member func(*wktReader) (T, *Error)) ([]T, *Error) {
	if !r.take('(') {
		return nil, r.unexpected("'('")
	}
	var all []T
	for {
		one, err := member(r)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		if r.take(')') {
			return all, nil
		}
		if !r.take(',') {
			return nil, r.unexpected("',' or ')'")
		}
	}
}

// points reads positions or EMPTY, which gives none.
func (r *wktReader) points() ([]orb.Point, *Error) {
	if r.takeWord("EMPTY") {
		return nil, nil
	}
	return texts(r, (*wktReader).position)
}

// lineString is nil for EMPTY.
func (r *wktReader) lineString() (orb.LineString, *Error) {
	r.space()
	at := r.pos
	points, err := r.points()
	switch {
	case err != nil:
	case points == nil:
		err = r.count(at)
	default:
		err = r.line(at, points)
	}
	return points, err
}

func (r *wktReader) linearRing() (orb.Ring, *Error) {
	r.space()
	at := r.pos
	points, err := r.points()
	if err == nil {
		err = r.ring(at, points)
	}
	return points, err
}

// polygon is nil for EMPTY.
func (r *wktReader) polygon() (orb.Polygon, *Error) {
	if r.takeWord("EMPTY") {
		return nil, r.count(r.pos)
	}
	return texts(r, (*wktReader).linearRing)
}

func (r *wktReader) parenthesized() (orb.Point, *Error) {
	if !r.take('(') {
		return orb.Point{}, r.unexpected("'('")
	}
	p, err := r.position()
	if err == nil && !r.take(')') {
		err = r.unexpected("')'")
	}
	return p, err
}

// multiPoint reads both styles of the wild, (1 2, 3 4) and ((1 2), (3 4)).
func (r *wktReader) multiPoint() (orb.Geometry, *Error) {
	var all orb.MultiPoint
	_, err := texts(r, func(r *wktReader) (struct{}, *Error) {
		if r.takeWord("EMPTY") {
			return struct{}{}, nil
		}
		read := (*wktReader).position
		if r.space(); r.peek() == '(' {
			read = (*wktReader).parenthesized
		}
		p, err := read(r)
		all = append(all, p)
		return struct{}{}, err
	})
	return filled(all, err)
}

func (r *wktReader) collection(depth int) (orb.Geometry, *Error) {
	if depth >= maxCollectionDepth {
		return nil, malformed(r.pos, "geometry collections nested deeper than %d levels", maxCollectionDepth)
	}
	var all orb.Collection
	_, err := texts(r, func(r *wktReader) (struct{}, *Error) {
		g, err := r.geometry(depth + 1)
		if g != nil {
			all = append(all, g)
		}
		return struct{}{}, err
	})
	return filled(all, err)
}

// position reads two to four ordinates, of which x and y are kept. What Z and M
// hold is not looked at: GEOS pads a missing Z with NaN.
func (r *wktReader) position() (orb.Point, *Error) {
	r.space()
	start := r.pos
	var xy orb.Point
	n := 0
	for ; ; n++ {
		if r.space(); r.peek() == ',' || r.peek() == ')' {
			break
		}
		v, err := r.ordinate()
		if err != nil {
			return xy, err
		}
		if n < 2 {
			xy[n] = v
		}
	}
	if n < 2 || n > 4 {
		return xy, malformed(start, "a position of %d ordinates", n)
	}
	if err := r.dimensions(start, n); err != nil {
		return xy, err
	}
	return xy, r.findings.position(start, xy)
}

func (r *wktReader) ordinate() (float64, *Error) {
	start := r.pos
	for c := r.peek(); isNumeric(c) || isLetter(c); c = r.peek() {
		r.pos++
	}
	token := r.b[start:r.pos]
	if len(token) == 0 {
		return 0, r.unexpected("a number")
	}
	if !isWKTNumber(token) {
		if v, ok := notFinite(token); ok {
			return v, nil
		}
		return 0, malformed(start, "not a number: %s", quoteShort(string(token)))
	}
	v, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return 0, notGeometry(start, "a number beyond the range of float64")
	}
	return v, nil
}

// isWKTNumber tells a decimal number, which ParseFloat alone does not: it also
// takes hexadecimal ones.
func isWKTNumber(token []byte) bool {
	i, digits := 0, 0
	skip := func() {
		for ; i < len(token) && isDigit(token[i]); i++ {
			digits++
		}
	}
	if token[0] == '-' || token[0] == '+' {
		i++
	}
	skip()
	if i < len(token) && token[i] == '.' {
		i++
		skip()
	}
	if digits == 0 || i == len(token) {
		return digits > 0
	}
	if token[i]|0x20 != 'e' {
		return false
	}
	if i++; i < len(token) && (token[i] == '-' || token[i] == '+') {
		i++
	}
	digits = 0
	skip()
	return digits > 0 && i == len(token)
}

func notFinite(token []byte) (float64, bool) {
	switch strings.ToLower(string(token[:min(len(token), 10)])) {
	case "nan", "+nan", "-nan":
		return math.NaN(), true
	case "inf", "+inf", "infinity", "+infinity":
		return math.Inf(1), true
	case "-inf", "-infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

// quoteShort shows the beginning of a word of a payload in a message.
func quoteShort(s string) string {
	const most = 24
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	// Not further back than a rune is long: the text may be no UTF-8 at all.
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

package geo

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/paulmach/orb"
)

// The type of every GeoJSON object is matched exactly, case included (RFC 7946 §1.4).
const (
	typeFeature    = "Feature"
	typeFeatures   = "FeatureCollection"
	typeCollection = "GeometryCollection"
)

func isGeometryType(t string) bool {
	switch t {
	case "Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", typeCollection:
		return true
	}
	return false
}

// parseGeoJSON goes over the whole text once, so that broken JSON is told as
// such wherever it breaks, and judges the members it kept afterwards.
func parseGeoJSON(body []byte) (*Document, *Error) {
	if err := checkText(body); err != nil {
		return nil, err
	}
	r := jsonReader{scanner: scanner{b: body, pos: textStart(body)}}
	r.space()
	if err := checkMarkup(body, r.pos); err != nil {
		return nil, err
	}
	if c := r.peek(); c != '{' {
		start := r.pos
		if err := r.value(); err != nil {
			return nil, err
		}
		return nil, malformed(start, "%s, a GeoJSON object is needed", kindOf(c))
	}
	root := jsonObject{root: true}
	if err := r.members(&root); err != nil {
		return nil, err
	}
	if r.space(); r.pos < len(body) {
		return nil, malformed(r.pos, "%s after the end of the JSON text", quoteByte(body[r.pos]))
	}
	return r.judge(&root)
}

type jsonReader struct {
	scanner
	findings
	collections int // GeometryCollections we are in
}

// jsonObject is what is kept of one object, before its type is known: members
// come in any order, and the last of two with one name wins.
type jsonObject struct {
	root  bool
	start int
	kind  string
	typed bool // has a type that is a string

	coordinates, properties, id, crs Span

	geometry geometryMember
	parts    partsMember
	features featuresMember

	esri       bool // has a member that only Esri JSON has
	hasX, hasY bool
}

// geometryMember is a "geometry" as read where it stood.
type geometryMember struct {
	span Span
	read reading
}

// partsMember is a "geometries" as read where it stood.
type partsMember struct {
	span Span
	read reading
}

// featuresMember is a "features" with the range of each.
type featuresMember struct {
	span   Span
	ranges []Span
	any    bool   // one of them is a Feature
	err    *Error // the first that is none
}

// reading is a geometry that was read before it was known whether it counts:
// an error in a foreign member named "geometries" must not fail the document.
type reading struct {
	geometry orb.Geometry
	err      *Error
	found    findings
	esri     bool
}

// members reads one object into o.
func (r *jsonReader) members(o *jsonObject) *Error {
	o.start = r.pos
	return r.object(func(name []byte) (err *Error) {
		switch string(name) {
		case "type":
			return r.typeMember(o)
		case "coordinates":
			o.coordinates, err = r.span()
		case "crs":
			o.crs, err = r.span()
		case "geometries":
			return r.partsMember(o)
		case "id":
			o.id, err = r.span()
		case "properties":
			o.properties, err = r.span()
		case "geometry":
			return r.geometryMember(o)
		case "features":
			return r.featuresMember(o)
		default:
			o.noteEsri(name)
			err = r.value()
		}
		return err
	})
}

func (r *jsonReader) typeMember(o *jsonObject) *Error {
	if o.typed = r.peek() == '"'; !o.typed {
		return r.value()
	}
	name, err := r.text()
	o.kind = string(name)
	return err
}

// noteEsri takes note of members by which Esri JSON, which has no type, is told.
func (o *jsonObject) noteEsri(name []byte) {
	switch string(name) {
	case "attributes", "rings", "paths", "points", "curveRings", "curvePaths", "spatialReference", "geometryType":
		o.esri = true
	case "x":
		o.hasX = true
	case "y":
		o.hasY = true
	}
}

func (o *jsonObject) isEsri() bool {
	return !o.typed && (o.esri || o.hasX && o.hasY || o.geometry.read.esri)
}

func (r *jsonReader) geometryMember(o *jsonObject) *Error {
	start := r.pos
	o.geometry = geometryMember{}
	if !o.root || r.peek() != '{' {
		if err := r.value(); err != nil {
			return err
		}
		o.geometry.span = Span{start, r.pos}
		return nil
	}
	read, err := r.part()
	o.geometry = geometryMember{Span{start, r.pos}, read}
	return err
}

// partsMember reads the members of a GeometryCollection where they stand, so
// that depth does not multiply the work. The first error among them is kept.
func (r *jsonReader) partsMember(o *jsonObject) *Error {
	start := r.pos
	o.parts = partsMember{}
	if r.peek() != '[' {
		err := r.value()
		o.parts.span = Span{start, r.pos}
		return err
	}
	if r.collections++; r.collections > maxCollectionDepth {
		return malformed(r.pos, "geometry collections nested deeper than %d levels", maxCollectionDepth)
	}
	var all orb.Collection
	var read reading
	err := r.array(func() *Error {
		at := r.pos
		if c := r.peek(); c != '{' {
			read.fail(notGeometry(at, "geometries hold %s, a geometry is needed", kindOf(c)))
			return r.value()
		}
		part, err := r.part()
		if err != nil {
			return err
		}
		read.fail(part.err)
		read.found.add(&part.found)
		if part.geometry != nil && read.err == nil {
			all = append(all, part.geometry)
		}
		return nil
	})
	r.collections--
	if len(all) > 0 {
		read.geometry = all
	}
	o.parts = partsMember{Span{start, r.pos}, read}
	return err
}

func (r *reading) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
}

// add takes over what was found in a part.
func (f *findings) add(part *findings) {
	if f.flaw == nil {
		f.flaw = part.flaw
	}
	f.infinite = f.infinite || part.infinite
	for _, c := range part.claims {
		f.claim(c)
	}
}

// part reads one geometry object. The error returned is of the JSON; one of the
// geometry is in the reading.
func (r *jsonReader) part() (reading, *Error) {
	var o jsonObject
	if err := r.members(&o); err != nil {
		return reading{}, err
	}
	read, err := r.shape(&o)
	return read, err
}

// shape makes the geometry that o, read to its end, stands for.
func (r *jsonReader) shape(o *jsonObject) (reading, *Error) {
	var read reading
	read.esri = o.isEsri()
	switch {
	case read.esri:
		read.err = unsupported(o.start, "Esri JSON is not read here")
	case !o.typed:
		read.err = notGeometry(o.start, "a geometry without a type")
	case o.kind == typeFeature || o.kind == typeFeatures:
		read.err = notGeometry(o.start, "a %s where a geometry is needed", o.kind)
	case !isGeometryType(o.kind):
		read.err = unknownType(o)
	case o.kind == typeCollection:
		read = r.collection(o)
	case o.coordinates.absent():
		read.err = notGeometry(o.start, "a geometry without coordinates")
	default:
		p := positions{b: r.b, pos: o.coordinates.Start, findings: &read.found}
		p.positions = r.positions
		read.geometry, read.err = p.read(o.kind)
		if r.positions = p.positions; r.positions > maxPositions {
			return read, read.err
		}
	}
	own := findings{claims: r.claimsOf(o)}
	own.add(&read.found)
	read.found = own
	return read, nil
}

func (r *jsonReader) collection(o *jsonObject) reading {
	switch {
	case o.parts.span.absent():
		return reading{err: notGeometry(o.start, "a GeometryCollection without geometries")}
	case r.b[o.parts.span.Start] != '[':
		at := o.parts.span.Start
		return reading{err: notGeometry(at, "geometries hold %s, an array is needed", kindOf(r.b[at]))}
	}
	return o.parts.read
}

func unknownType(o *jsonObject) *Error {
	if o.kind == "Topology" {
		return unsupported(o.start, "TopoJSON is not read here")
	}
	return unsupported(o.start, "no GeoJSON type: %s", quoteShort(o.kind))
}

// featuresMember keeps the range of each feature. Of a feature only its type is
// read: each is parsed alone later, and a bad one must not fail the others.
func (r *jsonReader) featuresMember(o *jsonObject) *Error {
	start := r.pos
	o.features = featuresMember{}
	if !o.root || r.peek() != '[' {
		err := r.value()
		o.features.span = Span{start, r.pos}
		return err
	}
	found := featuresMember{ranges: []Span{}}
	err := r.array(func() *Error {
		at, c := r.pos, r.peek()
		isFeature := false
		var err *Error
		if c == '{' {
			isFeature, err = r.featureHead()
		} else {
			err = r.value()
		}
		found.any = found.any || isFeature
		if !isFeature && found.err == nil {
			found.err = notGeometry(at, "features hold %s that is no Feature", kindOf(c))
		}
		if len(found.ranges) >= maxFeatures {
			return malformed(at, "more than %d features", maxFeatures)
		}
		found.ranges = append(found.ranges, Span{at, r.pos})
		return err
	})
	found.span = Span{start, r.pos}
	o.features = found
	return err
}

func (r *jsonReader) featureHead() (isFeature bool, err *Error) {
	err = r.object(func(name []byte) *Error {
		if string(name) != "type" {
			return r.value()
		}
		if isFeature = r.peek() == '"'; !isFeature {
			return r.value()
		}
		kind, err := r.text()
		isFeature = string(kind) == typeFeature
		return err
	})
	return isFeature, err
}

// judge makes the document of the outermost object.
func (r *jsonReader) judge(o *jsonObject) (*Document, *Error) {
	switch {
	case o.isEsri():
		return nil, unsupported(o.start, "Esri JSON is not read here")
	case !o.typed:
		return nil, malformed(o.start, "an object without a type, not GeoJSON")
	case o.kind == typeFeature:
		return r.feature(o)
	case o.kind == typeFeatures:
		return r.featureCollection(o)
	}
	read, err := r.shape(o)
	if err != nil {
		return nil, err
	}
	if read.err != nil {
		return nil, read.err
	}
	return read.found.document(read.geometry), nil
}

func (r *jsonReader) feature(o *jsonObject) (*Document, *Error) {
	doc := &Document{Feature: true, ID: r.jsonOf(o.id), Properties: r.jsonOf(o.properties)}
	if doc.Properties != nil && doc.Properties[0] != '{' {
		return nil, malformed(o.properties.Start, "properties are %s, an object is needed", kindOf(doc.Properties[0]))
	}
	at := o.geometry.span
	if at.absent() {
		return nil, notGeometry(o.start, "a Feature without a geometry member")
	}
	own := findings{claims: r.claimsOf(o)}
	switch c := r.b[at.Start]; {
	case c == 'n':
		doc.Claims = own.claims
		return doc, nil
	case c != '{':
		return nil, notGeometry(at.Start, "geometry is %s, an object is needed", kindOf(c))
	}
	read := &o.geometry.read
	if read.err != nil {
		return nil, read.err
	}
	own.add(&read.found)
	doc.Claims = own.claims
	own.settle(doc, read.geometry)
	return doc, nil
}

func (r *jsonReader) featureCollection(o *jsonObject) (*Document, *Error) {
	f := &o.features
	switch {
	case f.span.absent():
		return nil, malformed(o.start, "a FeatureCollection without features")
	case r.b[f.span.Start] != '[':
		return nil, malformed(f.span.Start, "features are %s, an array is needed", kindOf(r.b[f.span.Start]))
	case f.err != nil && !f.any:
		return nil, f.err // not a collection of features at all; else the bad ones die alone
	}
	return &Document{Collection: true, Features: f.ranges, Claims: r.claimsOf(o)}, nil
}

// jsonOf is the text of a member, nil if it is absent or null.
func (r *jsonReader) jsonOf(s Span) []byte {
	if s.absent() || r.b[s.Start] == 'n' {
		return nil
	}
	return slices.Clip(r.b[s.Start:s.End])
}

// claimsOf reads the crs member of the 2008 specification, which RFC 7946 §4
// removed and writers still write. null there claims nothing.
func (r *jsonReader) claimsOf(o *jsonObject) []string {
	raw := r.jsonOf(o.crs)
	if raw == nil {
		return nil
	}
	name, ok := namedCRS(raw)
	if !ok {
		name = string(raw[:min(len(raw), maxClaimBytes+1)])
	}
	var f findings
	f.claim(name)
	return f.claims
}

// namedCRS reads {"type":"name","properties":{"name":"…"}}. A name that holds
// control characters is left as its JSON, so that it is kept as written.
func namedCRS(raw []byte) (string, bool) {
	// Into maps, since encoding/json matches the fields of a struct whatever their case.
	var crs, properties map[string]json.RawMessage
	var kind, name string
	if json.Unmarshal(raw, &crs) != nil ||
		json.Unmarshal(crs["type"], &kind) != nil || kind != "name" ||
		json.Unmarshal(crs["properties"], &properties) != nil ||
		json.Unmarshal(properties["name"], &name) != nil || name == "" {
		return "", false
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return string(properties["name"]), true
	}
	return name, true
}

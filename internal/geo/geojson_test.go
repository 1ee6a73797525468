package geo

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/paulmach/orb"
)

func TestGeoJSONOutcomes(t *testing.T) {
	t.Parallel()
	const (
		malformed   = "parse/malformed_payload"
		invalid     = "parse/invalid_geometry"
		unsupported = "parse/unsupported_format"
		flawed      = "validate/invalid_geometry"
	)
	for _, c := range []struct{ name, body, want string }{
		{"members may come in any order", `{"coordinates":[1,2],"type":"Point"}`, "geometry"},
		{"an escaped member name is the same name", `{"t\u0079pe":"P\u006fint","coordinates":[1,2]}`, "geometry"},
		{"a miscased member name is another name", `{"Type":"Point","coordinates":[1,2]}`, malformed},
		{"a miscased coordinates is missing", `{"type":"Point","Coordinates":[1,2]}`, invalid},
		{"the last of two types wins", `{"type":"Polygon","type":"Point","coordinates":[1,2]}`, "geometry"},
		{"an overridden type that is wrong does not matter", `{"type":7,"type":"Point","coordinates":[1,2]}`, "geometry"},
		{"an overriding type that is wrong does", `{"type":"Point","type":7,"coordinates":[1,2]}`, malformed},
		{"a foreign geometries member is not looked at", `{"type":"Point","coordinates":[1,2],"geometries":[{"type":"Circle"}]}`, "geometry"},
		{"a foreign geometry member is not looked at", `{"type":"Point","coordinates":[1,2],"geometry":{"type":"Circle"}}`, "geometry"},
		{"a foreign features member is not looked at", `{"type":"Feature","geometry":null,"features":[7]}`, "null"},
		{"a bad surrogate in a property is legal", `{"type":"Feature","geometry":null,"properties":{"a":"\udc00"}}`, "null"},
		{"broken JSON after a bad geometry is told first", `{"type":"Point","coordinates":[null,null]`, malformed},
		{"a leading zero is no JSON", `{"type":"Point","coordinates":[01,2]}`, malformed},
		{"a leading plus is no JSON", `{"type":"Point","coordinates":[+1,2]}`, malformed},
		{"a bare fraction is no JSON", `{"type":"Point","coordinates":[.5,2]}`, malformed},
		{"a trailing point is no JSON", `{"type":"Point","coordinates":[5.,2]}`, malformed},
		{"a form feed is no JSON whitespace", "{\"type\":\"Point\",\f\"coordinates\":[1,2]}", malformed},
		{"a bad escape is no JSON", `{"type":"Feature","geometry":null,"a":"\x41"}`, malformed},
		{"a short unicode escape is no JSON", `{"type":"Feature","geometry":null,"a":"\u12"}`, malformed},
		{"Latin-1 is not UTF-8", "{\"type\":\"Feature\",\"geometry\":null,\"a\":\"M\xfcnchen\"}", malformed},
		{"a byte order mark alone is nothing", "\xef\xbb\xbf", malformed},
		{"two byte order marks are one too many", "\xef\xbb\xbf\xef\xbb\xbf{\"type\":\"Point\",\"coordinates\":[1,2]}", malformed},
		{"nothing is no JSON", "", malformed},
		{"a NUL at the end is no whitespace", "{\"type\":\"Point\",\"coordinates\":[1,2]}\x00", malformed},
		{"a literal cut short is no JSON", `nul`, malformed},
		{"an empty object is not GeoJSON", `{}`, malformed},
		{"a small number underflows to zero", `{"type":"Point","coordinates":[1e-400,-0]}`, "geometry"},
		{"a large height is out of range too", `{"type":"Point","coordinates":[1,2,1e400]}`, invalid},
		{"a height of null is no number", `{"type":"Point","coordinates":[1,2,null]}`, invalid},
		{"a boolean ordinate is no number", `{"type":"Point","coordinates":[true,2]}`, invalid},
		{"coordinates as an object", `{"type":"Point","coordinates":{"lon":1,"lat":2}}`, invalid},
		{"coordinates as a string", `{"type":"Point","coordinates":"1,2"}`, invalid},
		{"a point with coordinates missing", `{"type":"Point"}`, invalid},
		{"a geometry without a type in a feature", `{"type":"Feature","geometry":{"coordinates":[1,2]}}`, invalid},
		{"an empty geometry object in a feature", `{"type":"Feature","geometry":{}}`, invalid},
		{"a geometry that is a feature", `{"type":"Feature","geometry":{"type":"Feature","geometry":null}}`, invalid},
		{"a geometry that is WKT", `{"type":"Feature","geometry":"POINT(1 2)"}`, invalid},
		{"a geometry that is an array", `{"type":"Feature","geometry":[1,2]}`, invalid},
		{"an Esri geometry in a feature", `{"type":"Feature","geometry":{"x":1,"y":2}}`, unsupported},
		{"an Esri feature set", `{"geometryType":"esriGeometryPoint","features":[]}`, unsupported},
		{"an Esri polygon", `{"rings":[[[0,0],[1,1],[1,0],[0,0]]]}`, unsupported},
		{"properties as an array", `{"type":"Feature","geometry":null,"properties":[]}`, malformed},
		{"properties as a string", `{"type":"Feature","geometry":null,"properties":"a"}`, malformed},
		{"properties as null", `{"type":"Feature","geometry":null,"properties":null}`, "null"},
		{"an empty multipoint", `{"type":"MultiPoint","coordinates":[ ]}`, "empty"},
		{"an empty position in a multipoint", `{"type":"MultiPoint","coordinates":[[]]}`, invalid},
		{"a flat multipoint", `{"type":"MultiPoint","coordinates":[1,2]}`, invalid},
		{"an empty line in a multiline", `{"type":"MultiLineString","coordinates":[[]]}`, flawed},
		{"a bad second polygon", `{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]],[[[0,0],[1,0],[1,1]]]]}`, flawed},
		{"a flaw does not hide a wrong position behind it", `{"type":"Polygon","coordinates":[[],[[1]]]}`, invalid},
		{"an open hole", `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,0]],[[1,1],[2,1],[2,2],[1,2]]]}`, flawed},
		{"a ring of four equal positions is left for PostGIS", `{"type":"Polygon","coordinates":[[[1,1],[1,1],[1,1],[1,1]]]}`, "geometry"},
		{"a collection with a flawed member", `{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},{"type":"LineString","coordinates":[[1,2]]}]}`, flawed},
		{"a collection with an unknown member", `{"type":"GeometryCollection","geometries":[{"type":"Circle","coordinates":[1,2]}]}`, unsupported},
		{"a collection with null in it", `{"type":"GeometryCollection","geometries":[null]}`, invalid},
		{"a collection of empty members", `{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[]},{"type":"GeometryCollection","geometries":[]}]}`, "empty"},
		{"a collection with coordinates only", `{"type":"GeometryCollection","coordinates":[]}`, invalid},
		{"a collection of an object", `{"type":"GeometryCollection","geometries":{}}`, invalid},
		{"a feature in a feature collection that has no geometry", `{"type":"FeatureCollection","features":[{"type":"Feature"}]}`, "collection"},
		{"null in a feature collection", `{"type":"FeatureCollection","features":[null]}`, invalid},
		{"a feature collection in a feature collection", `{"type":"FeatureCollection","features":[{"type":"FeatureCollection","features":[]}]}`, invalid},
		{"a feature collection without features", `{"type":"FeatureCollection"}`, malformed},
		{"features as an object", `{"type":"FeatureCollection","features":{}}`, malformed},
		{"broken JSON in a feature", `{"type":"FeatureCollection","features":[{"type":"Feature","geometry":nil}]}`, malformed},
		{"a top-level GML document", `<gml:Point><gml:pos>1 2</gml:pos></gml:Point>`, unsupported},
		{"an HTML page behind an XML declaration", `<?xml version="1.0"?><!DOCTYPE html><html>`, malformed},
		{"a number", `42`, malformed},
		{"a string", `"POINT(1 2)"`, malformed},
		{"CityJSON", `{"type":"CityJSON","vertices":[]}`, unsupported},
		{"128 collections", string(nestedCollections(128, `{"type":"Point","coordinates":[1,2]}`)), "geometry"},
		{"129 collections", string(nestedCollections(129, `{"type":"Point","coordinates":[1,2]}`)), malformed},
		{"128 collections side by side", `{"type":"GeometryCollection","geometries":[` + strings.Repeat(`{"type":"GeometryCollection","geometries":[]},`, 200) + `{"type":"Point","coordinates":[1,2]}]}`, "geometry"},
		{"a property 500 deep", `{"type":"Feature","geometry":null,"properties":{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}}`, "null"},
		{"a million open brackets", strings.Repeat("[", 1_000_000), malformed},
		{"a million open objects", strings.Repeat(`{"a":`, 1_000_000), malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc, err := Parse(GeoJSON, []byte(c.body))
			if got := outcome(doc, err); got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
			checkMessage(t, doc, err)
		})
	}
}

// checkMessage holds the text of an error to what a database and a page take.
func checkMessage(t *testing.T, doc *Document, err error) {
	t.Helper()
	if doc != nil && doc.Flaw != nil {
		err = doc.Flaw
	}
	if err == nil {
		return
	}
	text := err.Error()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 }) || len(text) > 200 {
		t.Errorf("a message nobody can store or read: %q", text)
	}
}

func TestGeoJSONGeometriesAreReadAsSent(t *testing.T) {
	t.Parallel()
	ring := orb.Ring{{0, 0}, {4, 0}, {4, 4}, {0, 0}}
	for _, c := range []struct {
		body string
		want orb.Geometry
	}{
		{`{"type":"Point","coordinates":[13.4,-52.5e0,34]}`, orb.Point{13.4, -52.5}},
		{`{"type":"MultiPoint","coordinates":[[1,2],[3,4,5]]}`, orb.MultiPoint{{1, 2}, {3, 4}}},
		{`{"type":"LineString","coordinates":[ [1,2] , [3,4] ]}`, orb.LineString{{1, 2}, {3, 4}}},
		{`{"type":"MultiLineString","coordinates":[[[1,2],[3,4]]]}`, orb.MultiLineString{{{1, 2}, {3, 4}}}},
		{`{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,0]]]}`, orb.Polygon{ring}},
		{`{"type":"MultiPolygon","coordinates":[[[[0,0],[4,0],[4,4],[0,0]]]]}`, orb.MultiPolygon{{ring}}},
		{
			`{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[]},{"type":"Point","coordinates":[1,2]}]}`,
			orb.Collection{orb.Point{1, 2}},
		},
	} {
		doc, err := Parse(GeoJSON, []byte(c.body))
		if err != nil || !reflect.DeepEqual(doc.Geometry, c.want) {
			t.Errorf("%s: got %v (%v), want %v", c.body, doc, err, c.want)
		}
	}
}

func TestAFeatureKeepsItsExactBytes(t *testing.T) {
	t.Parallel()
	doc, err := Parse(GeoJSON, []byte(`{"type":"Feature","id": 9007199254740993 ,"properties": {"a" :1.0e0} ,"geometry":null}`))
	if err != nil || string(doc.ID) != "9007199254740993" || string(doc.Properties) != `{"a" :1.0e0}` {
		t.Errorf("got id %s, properties %s, %v", doc.ID, doc.Properties, err)
	}
	if doc, err = Parse(GeoJSON, []byte(`{"type":"Feature","id":null,"geometry":null}`)); err != nil || doc.ID != nil || doc.Properties != nil {
		t.Errorf("got id %s, properties %s, %v", doc.ID, doc.Properties, err)
	}
}

func TestTheSpansOfACollectionParseToItsFeatures(t *testing.T) {
	t.Parallel()
	const body = ` {"features": [ {"type":"Feature","id":1,"geometry":{"type":"Point","coordinates":[1,2]}},` +
		"\n" + `{"id":"ö","type":"Feature","geometry":{"type":"Polygon","coordinates":[[null]]}} , {"geometry":null,"id":3,"type":"Feature"}],"type":"FeatureCollection"}`
	for name, text := range map[string]string{"plain": body, "behind a byte order mark": "\xef\xbb\xbf" + body} {
		doc, err := Parse(GeoJSON, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range doc.Features {
			one, err := Parse(GeoJSON, []byte(text)[s.Start:s.End])
			id := "?"
			if err == nil {
				id = string(one.ID)
			}
			got = append(got, id+" "+outcome(one, err))
		}
		want := []string{"1 geometry", "? parse/invalid_geometry", "3 null"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestOffsetsPointIntoTheBodyAsGiven(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		"\xef\xbb\xbf{\"type\":\"Point\",\"coordinates\":[1,x]}":                     36,
		`{"type":"Point","coordinates":[1,null]}`:                                    33,
		`{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]],[[0,0],[0,0]]]}`: 59,
	} {
		doc, err := Parse(GeoJSON, []byte(body))
		if doc != nil {
			err = doc.Flaw
		}
		if e, ok := err.(*Error); !ok || e.Offset != want {
			t.Errorf("%s: got %v, want offset %d", body, err, want)
		}
	}
}

func TestClaimsInGeoJSON(t *testing.T) {
	t.Parallel()
	named := func(n string) string { return `{"type":"name","properties":{"name":"` + n + `"}}` }
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"none", `{"type":"Point","coordinates":[1,2]}`, nil},
		{"null", `{"type":"Point","coordinates":[1,2],"crs":null}`, nil},
		{"a geometry's", `{"type":"Point","coordinates":[1,2],"crs":` + named("EPSG:3857") + `}`, []string{"EPSG:3857"}},
		{"a feature's and its geometry's, which differ", `{"type":"Feature","crs":` + named("A") + `,"geometry":{"type":"Point","coordinates":[1,2],"crs":` + named("B") + `}}`, []string{"A", "B"}},
		{"a feature's and its geometry's, which agree", `{"type":"Feature","crs":` + named("A") + `,"geometry":{"type":"Point","coordinates":[1,2],"crs":` + named("A") + `}}`, []string{"A"}},
		{"a feature's without a geometry", `{"type":"Feature","crs":` + named("A") + `,"geometry":null}`, []string{"A"}},
		{"one deep in a collection", `{"type":"GeometryCollection","geometries":[{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[],"crs":` + named("A") + `}]}]}`, []string{"A"}},
		{"a collection's alone", `{"type":"FeatureCollection","crs":` + named("A") + `,"features":[{"type":"Feature","geometry":null,"crs":` + named("B") + `}]}`, []string{"A"}},
		{"a link", `{"type":"Point","coordinates":[1,2],"crs":{"type":"link"}}`, []string{`{"type":"link"}`}},
		{"a type that is not name", `{"type":"Point","coordinates":[1,2],"crs":{"type":"link","properties":{"name":"A"}}}`, []string{`{"type":"link","properties":{"name":"A"}}`}},
		{"a string", `{"type":"Point","coordinates":[1,2],"crs":"EPSG:4326"}`, []string{`"EPSG:4326"`}},
		{"a miscased name", `{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"Name":"EPSG:3857"}}}`, []string{`{"type":"name","properties":{"Name":"EPSG:3857"}}`}},
		{"a name with NUL in it", `{"type":"Point","coordinates":[1,2],"crs":` + named(`a\u0000b`) + `}`, []string{`"a\u0000b"`}},
		{"a long name", `{"type":"Point","coordinates":[1,2],"crs":` + named(strings.Repeat("ü", 3000)) + `}`, []string{strings.Repeat("ü", 100)}},
		{"a long link", `{"type":"Point","coordinates":[1,2],"crs":"` + strings.Repeat("ü", 3000) + `"}`, []string{`"` + strings.Repeat("ü", 99)}},
	} {
		doc, err := Parse(GeoJSON, []byte(c.body))
		if err != nil || !slices.Equal(doc.Claims, c.want) {
			t.Errorf("%s: got %v (%v), want %q", c.name, doc, err, c.want)
		}
	}
}

func TestAFlawedGeometryIsSketchedAndNotStored(t *testing.T) {
	t.Parallel()
	doc, err := Parse(GeoJSON, []byte(`{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,4]]]}`))
	if err != nil || doc.Geometry != nil || doc.Flaw == nil {
		t.Fatalf("got %v (%v)", doc, err)
	}
	if at, ok := Anchor(doc.Sketch); !ok || at != (orb.Point{2, 2}) {
		t.Errorf("got anchor %v %v", at, ok)
	}
	if doc, err = Parse(WKT, []byte(`LINESTRING(1 2, NaN 3)`)); err != nil || doc.Flaw == nil || doc.Sketch != nil {
		t.Errorf("got %v (%v)", doc, err)
	}
}

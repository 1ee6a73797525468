package geo

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/paulmach/orb"
)

func TestWKTOutcomes(t *testing.T) {
	t.Parallel()
	const (
		malformed   = "parse/malformed_payload"
		invalid     = "parse/invalid_geometry"
		unsupported = "parse/unsupported_format"
		flawed      = "validate/invalid_geometry"
	)
	for _, c := range []struct{ name, body, want string }{
		{"a trailing newline and a byte order mark", "\xef\xbb\xbf POINT (1 2) \r\n", "geometry"},
		{"a tag without a space", "POINTZM(1 2 3 4)", "geometry"},
		{"a measure", "POINT M (1 2 3)", "geometry"},
		{"a bare third and fourth ordinate", "LINESTRING(1 2 3 4,5 6 7 8)", "geometry"},
		{"a tag that its positions do not bear out", "POINT Z (1 2)", malformed},
		{"a collection of two dimensionalities", "GEOMETRYCOLLECTION(POINT(1 2),POINT(1 2 3))", malformed},
		{"five ordinates", "POINT(1 2 3 4 5)", malformed},
		{"one ordinate", "POINT(1)", malformed},
		{"no position", "POINT()", malformed},
		{"two positions in a point", "POINT(1 2,3 4)", malformed},
		{"a hole that is open", "POLYGON((0 0,9 0,9 9,0 0),(1 1,2 1,2 2,1 2))", flawed},
		{"a line of one position", "LINESTRING(1 2)", flawed},
		{"an empty ring", "POLYGON(EMPTY)", flawed},
		{"an empty collection", "geometrycollection empty", "empty"},
		{"a tagged empty", "MULTIPOLYGON ZM EMPTY", "empty"},
		{"a collection of empties", "GEOMETRYCOLLECTION(POINT EMPTY,MULTIPOINT(EMPTY))", "empty"},
		{"a collection with empties between", "GEOMETRYCOLLECTION(POINT EMPTY,POINT(1 2))", "geometry"},
		{"an EMPTY with something behind it", "POINT EMPTY(1 2)", malformed},
		{"exponents and signs", "POINT(+1.5e+2 -.5E-1)", "geometry"},
		{"a hexadecimal number", "POINT(0x1p4 2)", malformed},
		{"an underscore in a number", "POINT(1_0 2)", malformed},
		{"two points in a number", "POINT(1.2.3 4)", malformed},
		{"a number out of range", "POINT(1e400 2)", invalid},
		{"infinity", "LINESTRING(1 2,-Infinity 3)", flawed},
		{"a height that is NaN", "POINT Z (1 2 NaN)", "geometry"},
		{"a semicolon at the end", "POINT(1 2);", malformed},
		{"two geometries", "POINT(1 2)\nPOINT(3 4)", malformed},
		{"a parenthesis missing", "POLYGON((0 0,1 0,1 1,0 0)", malformed},
		{"a parenthesis too many", "POINT(1 2))", malformed},
		{"full-width digits", "POINT(１ ２)", malformed},
		{"a no-break space", "POINT(1\u00a02)", malformed},
		{"a NUL", "POINT(1 2)\x00", malformed},
		{"Latin-1", "POINT(1 2)\xfc", malformed},
		{"nothing", "", malformed},
		{"a surface", "MULTISURFACE(CURVEPOLYGON(CIRCULARSTRING(0 0,1 1,0 0)))", unsupported},
		{"a curve in a collection", "GEOMETRYCOLLECTION(CIRCULARSTRING(0 0,1 1,0 0))", unsupported},
		{"a curve with a tag", "CircularStringZ(0 0 0,1 1 1,0 0 0)", unsupported},
		{"a TIN", "TIN(((0 0,1 0,1 1,0 0)))", unsupported},
		{"a name nobody has", "PONIT(1 2)", malformed},
		{"a name of Z alone", "ZZZZ(1 2)", malformed},
		{"a box", "BOX(1 2,3 4)", malformed},
		{"an array of JSON", "[1,2]", malformed},
		{"KML", "<kml/>", unsupported},
		{"SRID 0", "SRID=0;POINT(1 2)", "geometry"},
		{"an SRID with a space in it", "SRID = 4326;POINT(1 2)", malformed},
		{"an SRID that is no integer", "SRID=4326.0;POINT(1 2)", malformed},
		{"an SRID of nothing", "SRID=;POINT(1 2)", malformed},
		{"an SRID beyond all integers", "SRID=99999999999999999999;POINT(1 2)", malformed},
		{"an SRID with a comma", "SRID=4326,POINT(1 2)", malformed},
		{"two SRIDs", "SRID=4326;SRID=4326;POINT(1 2)", malformed},
		{"an SRID alone", "SRID=4326;", malformed},
		{"an SRID in a member", "GEOMETRYCOLLECTION(SRID=4326;POINT(1 2))", malformed},
		{"hex of odd length", "0101000000CDCCCCCCCCCC2A400000000000404A4", malformed},
		{"hex cut off", "0101000000CDCCCCCCCCCC2A40", malformed},
		{"hex behind an SRID", "SRID=4326;0101000000CDCCCCCCCCCC2A400000000000404A40", "geometry"},
		{"hex of an open line", "010200000001000000000000000000F03F0000000000000040", flawed},
		{"128 collections", strings.Repeat("GEOMETRYCOLLECTION(", 128) + "POINT(1 2)" + strings.Repeat(")", 128), "geometry"},
		{"129 collections", strings.Repeat("GEOMETRYCOLLECTION(", 129) + "POINT(1 2)" + strings.Repeat(")", 129), malformed},
		{"a million open collections", strings.Repeat("GEOMETRYCOLLECTION(", 1_000_000), malformed},
		{"a word of a megabyte", strings.Repeat("Z", 1<<20), malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc, err := Parse(WKT, []byte(c.body))
			if got := outcome(doc, err); got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
			checkMessage(t, doc, err)
		})
	}
}

func TestWKTGeometriesAreReadAsSent(t *testing.T) {
	t.Parallel()
	ring := orb.Ring{{0, 0}, {4, 0}, {4, 4}, {0, 0}}
	for body, want := range map[string]orb.Geometry{
		"POINT ZM (1 2 3 4)":                                orb.Point{1, 2},
		"MULTIPOINT(1 2,EMPTY,(3 4))":                       orb.MultiPoint{{1, 2}, {3, 4}},
		"LineString\t( 1  2 ,3 4 )":                         orb.LineString{{1, 2}, {3, 4}},
		"MULTILINESTRING((1 2,3 4),EMPTY)":                  orb.MultiLineString{{{1, 2}, {3, 4}}},
		"POLYGON((0 0,4 0,4 4,0 0))":                        orb.Polygon{ring},
		"MULTIPOLYGON(EMPTY,((0 0,4 0,4 4,0 0)))":           orb.MultiPolygon{{ring}},
		"GEOMETRYCOLLECTION Z(POINT Z(1 2 3),POINT(4 5 6))": orb.Collection{orb.Point{1, 2}, orb.Point{4, 5}},
	} {
		doc, err := Parse(WKT, []byte(body))
		if err != nil || !reflect.DeepEqual(doc.Geometry, want) {
			t.Errorf("%s: got %v (%v), want %v", body, doc, err, want)
		}
	}
}

func TestClaimsInText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		"POINT(1 2)":              nil,
		"SRID=0;POINT(1 2)":       nil,
		"srid=3857;POINT(1 2)":    {"EPSG:3857"},
		"SRID=04326; POINT EMPTY": {"EPSG:4326"},
		"SRID=-1;POINT(1 2)":      {"EPSG:-1"},
		"0101000020e6100000cdcccccccccc2a400000000000404a40":           {"EPSG:4326"},
		"SRID=3857;0101000020e6100000cdcccccccccc2a400000000000404a40": {"EPSG:3857", "EPSG:4326"},
	} {
		doc, err := Parse(WKT, []byte(body))
		if err != nil || !slices.Equal(doc.Claims, want) {
			t.Errorf("%s: got %v (%v), want %q", body, doc, err, want)
		}
	}
}

func TestOffsetsOfHexPointIntoTheText(t *testing.T) {
	t.Parallel()
	_, err := Parse(WKT, []byte(" 0101000000CDCCCCCCCCCC2A40"))
	if e, ok := err.(*Error); !ok || e.Offset != 1+2*5 {
		t.Errorf("got %v", err)
	}
}

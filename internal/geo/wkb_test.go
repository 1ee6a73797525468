package geo

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/paulmach/orb"
)

// packed writes bytes, and numbers as uint32 or float64 in the order that the
// last byte named.
func packed(parts ...any) []byte {
	var b []byte
	var order binary.AppendByteOrder = binary.LittleEndian
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			if order = binary.LittleEndian; p == 0 {
				order = binary.BigEndian
			}
			b = append(b, p)
		case int:
			b = order.AppendUint32(b, uint32(p))
		case float64:
			b = order.AppendUint64(b, math.Float64bits(p))
		}
	}
	return b
}

const (
	big    = byte(0)
	little = byte(1)
)

func TestWKBOutcomes(t *testing.T) {
	t.Parallel()
	const (
		malformed   = "parse/malformed_payload"
		unsupported = "parse/unsupported_format"
		flawed      = "validate/invalid_geometry"
	)
	nan := math.NaN()
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"a big-endian point", packed(big, 1, 1., 2.), "geometry"},
		{"both byte orders", packed(big, 4, 2, little, 1, 1., 2., big, 1, 3., 4.), "geometry"},
		{"an ISO Z", packed(little, 1001, 1., 2., 3.), "geometry"},
		{"an ISO M", packed(little, 2001, 1., 2., 3.), "geometry"},
		{"an ISO ZM", packed(little, 3001, 1., 2., 3., 4.), "geometry"},
		{"an ISO type of 4000", packed(little, 4001, 1., 2.), malformed},
		{"an EWKB ZM with SRID", packed(little, 0xe0000001, 4326, 1., 2., 3., 4.), "geometry"},
		{"both ways to say Z", packed(little, 0x80000000+1001, 1., 2., 3.), "geometry"},
		{"a Z that is not there", packed(little, 1001, 1., 2.), malformed},
		{"an SRID that is not there", packed(little, 0x20000001), malformed},
		{"a byte order of 2", packed(byte(2), 1, 1., 2.), malformed},
		{"nothing", nil, malformed},
		{"a byte order alone", packed(little), malformed},
		{"type 0", packed(little, 0, 1., 2.), malformed},
		{"type 99", packed(little, 99), malformed},
		{"a circular string", packed(little, 8, 0), unsupported},
		{"a TIN of ISO Z", packed(little, 1016, 0), unsupported},
		{"a curve in a collection", packed(little, 7, 1, little, 8, 0), unsupported},
		{"a line in a multipoint", packed(little, 4, 1, little, 2, 2, 1., 2., 3., 4.), malformed},
		{"four billion points", packed(little, 2, 0xffffffff, 1., 2.), malformed},
		{"a count that overflows 32 bits when multiplied", packed(little, 2, 0x10000000, 1., 2.), malformed},
		{"four billion rings", packed(little, 3, 0xffffffff, 0), malformed},
		{"four billion members", packed(little, 7, 0xffffffff, little, 7, 0), malformed},
		{"a count of one too many", packed(little, 2, 3, 1., 2., 3., 4.), malformed},
		{"a height of NaN", packed(little, 1001, 1., 2., nan), "geometry"},
		{"a point that is half NaN", packed(little, 1, nan, 2.), flawed},
		{"a point at infinity", packed(little, 1, math.Inf(1), 2.), flawed},
		{"a NaN point in a multipoint", packed(little, 4, 2, little, 1, nan, nan, little, 1, 1., 2.), "geometry"},
		{"a multipoint of NaN points", packed(little, 4, 1, little, 1, nan, nan), "empty"},
		{"a NaN vertex in a line", packed(little, 2, 2, nan, nan, 1., 2.), flawed},
		{"a line without points", packed(little, 2, 0), "empty"},
		{"a line of one point", packed(little, 2, 1, 1., 2.), flawed},
		{"a polygon without rings", packed(little, 3, 0), "empty"},
		{"a polygon of an empty ring", packed(little, 3, 1, 0), flawed},
		{"an open ring", packed(little, 3, 1, 4, 0., 0., 1., 0., 1., 1., 0., 1.), flawed},
		{"a ring of three", packed(little, 3, 1, 3, 0., 0., 1., 0., 0., 0.), flawed},
		{"a multipolygon of empty ones", packed(little, 6, 1, little, 3, 0), "empty"},
		{"128 collections", nestedWKB(128), "empty"},
		{"129 collections", nestedWKB(129), malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc, err := Parse(WKB, c.body)
			if got := outcome(doc, err); got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
			checkMessage(t, doc, err)
		})
	}
}

func TestClaimsInWKB(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body []byte
		want []string
	}{
		{packed(little, 0x20000001, 0, 1., 2.), nil},
		{packed(big, 0x20000001, 25833, 1., 2.), []string{"EPSG:25833"}},
		{packed(little, 0x20000004, 1, 1, little, 0x20000001, 2, 1., 2.), []string{"EPSG:1", "EPSG:2"}},
		{packed(little, 0x20000001, 0xffffffff, 1., 2.), []string{"EPSG:-1"}},
	} {
		doc, err := Parse(WKB, c.body)
		if err != nil || !slices.Equal(doc.Claims, c.want) {
			t.Errorf("%x: got %v (%v), want %q", c.body, doc, err, c.want)
		}
	}
}

func TestWKBRoundTrips(t *testing.T) {
	t.Parallel()
	ring := orb.Ring{{0, 0}, {4, 0}, {4, 4}, {0, 0}}
	for _, g := range []orb.Geometry{
		orb.Point{1, 2}, orb.MultiPoint{{1, 2}}, orb.LineString{{1, 2}, {3, 4}}, orb.MultiLineString{{{1, 2}, {3, 4}}},
		orb.Polygon{ring, ring}, orb.MultiPolygon{{ring}, {ring}}, orb.Collection{orb.Point{1, 2}, orb.Collection{orb.Polygon{ring}}},
		orb.LineString{{1, 2}}, orb.Polygon{{{0, 0}, {1, 0}}},
	} {
		b, err := EncodeWKB(g)
		if err != nil || b[0] != 1 {
			t.Fatalf("%v: %v", g, err)
		}
		if got, err := DecodeWKB(b); err != nil || !reflect.DeepEqual(got, g) {
			t.Errorf("got %v (%v), want %v", got, err, g)
		}
	}
}

func TestWKBOfNothingIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := EncodeWKB(nil); !errors.Is(err, ErrNoGeometry) {
		t.Errorf("encoding: %v", err)
	}
	if _, err := DecodeWKB(packed(little, 3, 0)); !errors.Is(err, ErrNoGeometry) {
		t.Errorf("decoding POLYGON EMPTY: %v", err)
	}
	if _, err := DecodeWKB(packed(little, 1, math.NaN(), 1.)); err == nil {
		t.Error("decoding NaN gave no error")
	}
	if g, err := DecodeWKB(nil); err == nil || g != nil {
		t.Errorf("decoding no bytes: %v, %v", g, err)
	}
}

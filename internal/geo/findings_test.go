package geo

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// A part without positions takes as much memory as many bytes of text: there are no more
// of them than positions.
func TestPartsWithoutPositionsCountToo(t *testing.T) {
	list := func(head, part, tail string) []byte {
		return []byte(head + strings.TrimSuffix(strings.Repeat(part+",", maxPositions+1), ",") + tail)
	}
	var rings bytes.Buffer
	rings.Write([]byte{1, wkbPolygon, 0, 0, 0})
	_ = binary.Write(&rings, binary.LittleEndian, uint32(maxPositions+1))
	rings.Write(make([]byte, 4*(maxPositions+1)))
	for name, c := range map[string]struct {
		format Format
		body   []byte
	}{
		"lines as GeoJSON":    {GeoJSON, list(`{"type":"MultiLineString","coordinates":[`, "[]", `]}`)},
		"rings as GeoJSON":    {GeoJSON, list(`{"type":"Polygon","coordinates":[`, "[]", `]}`)},
		"polygons as GeoJSON": {GeoJSON, list(`{"type":"MultiPolygon","coordinates":[`, "[]", `]}`)},
		"lines as WKT":        {WKT, list("MULTILINESTRING(", "EMPTY", ")")},
		"rings as WKT":        {WKT, list("POLYGON(", "EMPTY", ")")},
		"polygons as WKT":     {WKT, list("MULTIPOLYGON(", "EMPTY", ")")},
		"rings as WKB":        {WKB, rings.Bytes()},
		"positions":           {GeoJSON, list(`{"type":"MultiPoint","coordinates":[`, "[1,2]", `]}`)},
	} {
		want := "more than 2000000 positions"
		if c.format == WKB {
			want = "more than 2000000 rings" // before there is room made for them
		}
		if _, err := Parse(c.format, c.body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

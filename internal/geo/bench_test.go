package geo

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/paulmach/orb"
)

const typicalFeature = `{"type":"Feature","id":"a-4711","geometry":{"type":"Polygon","coordinates":[[[13.3761,52.5093],[13.3802,52.5093],[13.3802,52.5121],[13.3761,52.5121],[13.3761,52.5093]]]},"properties":{"name":"Potsdamer Platz","height":103.5,"levels":26,"tags":["office","rail"],"updated":"2025-02-17T09:30:00Z","source":"survey"}}`

func BenchmarkParse(b *testing.B) {
	star := starPolygon(100_000, [2]float64{10, 50}, 0.8, 1)
	doc, err := Parse(GeoJSON, star)
	if err != nil {
		b.Fatal(err)
	}
	wkb, err := EncodeWKB(doc.Geometry)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		format Format
		body   []byte
	}{
		{"feature", GeoJSON, []byte(typicalFeature)},
		{"polygon of 100k vertices as GeoJSON", GeoJSON, star},
		{"polygon of 100k vertices as WKB", WKB, wkb},
		{"polygon of 100k vertices as hex", WKT, []byte(hex.EncodeToString(wkb))},
		{"point as WKT", WKT, []byte("POINT(13.4 52.5)")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(c.format, c.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// The baseline: the standard library into orb's own types, which checks less.
	for name, body := range map[string][]byte{"feature": []byte(typicalFeature), "polygon of 100k vertices": star} {
		b.Run("baseline encoding/json, "+name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var f struct {
					Properties json.RawMessage
					Geometry   struct{ Coordinates orb.Polygon }
				}
				if err := json.Unmarshal(body, &f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLookupCRS(b *testing.B) {
	for b.Loop() {
		if _, _, err := LookupCRS("urn:ogc:def:crs:EPSG::25833"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseTable(b *testing.B) {
	for b.Loop() {
		parseTable(crsText)
	}
}

func BenchmarkAnchor(b *testing.B) {
	doc, err := Parse(GeoJSON, starPolygon(100_000, [2]float64{10, 50}, 0.8, 1))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Anchor(doc.Geometry)
	}
}

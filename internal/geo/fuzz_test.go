package geo

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"geodlq/internal/dlq"

	"github.com/paulmach/orb"
)

func fuzzParse(f *testing.F, format Format, name string) {
	for _, c := range readCorpus(f) {
		if c.Format == name && c.Generator == nil {
			f.Add(c.body(f))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := Parse(format, body)
		checkParsed(t, format, body, doc, err)
	})
}

// checkParsed holds any outcome to what Document and Error promise.
func checkParsed(t *testing.T, format Format, body []byte, doc *Document, err error) {
	checkMessage(t, doc, err)
	if err != nil {
		var e *Error
		if doc != nil || !errors.As(err, &e) || e.Stage != dlq.StageParse || !e.Class.Valid() || e.Offset > len(body) {
			t.Fatalf("got %v and %#v", doc, err)
		}
		return
	}
	if doc.Geometry != nil && (doc.Flaw != nil || doc.Empty || doc.Collection) {
		t.Fatalf("a geometry that should be none: %+v", doc)
	}
	for _, c := range doc.Claims {
		if !utf8.ValidString(c) || len(c) > maxClaimBytes+3 {
			t.Fatalf("a claim nobody can store: %q", c)
		}
	}
	if format == GeoJSON && !json.Valid(body[textStart(body):]) {
		t.Fatalf("encoding/json does not take %q", body)
	}
	for _, s := range doc.Features {
		if one, err := Parse(GeoJSON, body[s.Start:s.End]); err == nil && one.Collection {
			t.Fatalf("a feature that is a collection: %q", body[s.Start:s.End])
		}
	}
	Anchor(doc.Sketch)
	if doc.Geometry != nil {
		checkGeometry(t, doc.Geometry)
	}
}

func checkGeometry(t *testing.T, g orb.Geometry) {
	EachPoint(g, func(p orb.Point) bool {
		if !finite(p) {
			t.Fatalf("a vertex of %v", p)
		}
		return true
	})
	if at, ok := Anchor(g); !ok || !finite(at) {
		t.Fatalf("an anchor of %v, %v for %v", at, ok, g)
	}
	b, err := EncodeWKB(g)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeWKB(b)
	if err != nil || !orb.Equal(g, back) {
		t.Fatalf("got %v (%v) back, sent %v", back, err, g)
	}
	if !orb.Equal(SwapAxes(SwapAxes(g)), g) {
		t.Fatal("swapping twice is not nothing")
	}
}

func FuzzGeoJSON(f *testing.F) { fuzzParse(f, GeoJSON, "geojson") }
func FuzzWKT(f *testing.F)     { fuzzParse(f, WKT, "wkt") }
func FuzzWKB(f *testing.F)     { fuzzParse(f, WKB, "wkb") }

func FuzzLookupCRS(f *testing.F) {
	for _, claim := range []string{
		"EPSG:4326", "ESRI:102100", "urn:ogc:def:crs:EPSG::3857", "<http://www.opengis.net/def/crs/OGC/1.3/CRS84>",
		"http://www.opengis.net/gml/srs/epsg.xml#4326", "CRS84", "<b>WGS84?</b>", "EPSG:4978",
	} {
		f.Add(claim, 13.4, 52.5)
	}
	f.Fuzz(func(t *testing.T, claim string, lon, lat float64) {
		crs, _, err := LookupCRS(claim)
		if err == nil {
			crs.Contains(lon, lat)
			if crs.SRID <= 0 || !crs.Same(crs) {
				t.Fatalf("%q: %+v", claim, crs)
			}
			return
		}
		text := err.Error()
		if !errors.Is(err, ErrUnknownCRS) || !utf8.ValidString(text) || len(text) > 200 {
			t.Fatalf("%q: %q", claim, text)
		}
	})
}

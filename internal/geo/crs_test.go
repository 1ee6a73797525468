package geo

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSpellingsOfAClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim          string
		srid           int
		authorityOrder bool
		northingFirst  bool
	}{
		{"EPSG:4326", 4326, false, true},
		{" epsg : 3857 ", 3857, false, false},
		{"ESRI:54009", 54009, false, false},
		{"urn:ogc:def:crs:EPSG::25833", 25833, false, false},
		{"URN:OGC:DEF:CRS:EPSG:9.9.1:4326", 4326, false, true},
		{"urn:ogc:def:crs:EPSG:31467", 31467, false, true},
		{"urn:x-ogc:def:crs:EPSG:6.6:27700", 27700, false, false},
		{"http://www.opengis.net/def/crs/EPSG/0/4326", 4326, true, true},
		{"https://www.opengis.net/def/crs/EPSG/9.8.2/3857", 3857, true, false},
		{"<http://www.opengis.net/def/crs/EPSG/0/2193>", 2193, true, true},
		{"<urn:ogc:def:crs:EPSG::2193>", 2193, false, true},
		{"http://opengis.net/def/crs/EPSG/0/32633/", 32633, true, false},
		{"http://www.opengis.net/gml/srs/epsg.xml#4326", 4326, false, true},
		{"CRS84", 4326, false, false},
		{"crs84h", 4326, false, false},
		{"OGC:CRS84", 4326, false, false},
		{"CRS:84", 4326, false, false},
		{"urn:ogc:def:crs:OGC:1.3:CRS84", 4326, false, false},
		{"urn:ogc:def:crs:OGC::CRS84", 4326, false, false},
		{"http://www.opengis.net/def/crs/OGC/1.3/CRS84", 4326, true, false},
		{"http://www.opengis.net/def/crs/OGC/0/CRS84h", 4326, true, false},
		{"OGC:CRS83", 4269, false, false},
		{"CRS27", 4267, false, false},
		{"EPSG:900913", 3857, false, false},
		{"EPSG:102100", 3857, false, false},
		{"ESRI:102113", 3857, false, false},
		{"EPSG:3785", 3857, false, false},
		{"EPSG:54009", 54009, false, false},
		{"ESRI:25833", 25833, false, false},
		{"EPSG:4979", 4326, false, true},
		{"EPSG:5972", 25832, false, false},
		{"EPSG:32661", 32661, false, true},
		{"EPSG:4268", 4268, false, true},
		{"EPSG:2036", 2036, false, true},
	} {
		crs, order, err := LookupCRS(c.claim)
		if err != nil || crs.SRID != c.srid || order != c.authorityOrder || crs.NorthingFirst != c.northingFirst {
			t.Errorf("%q: got srid %d, authority order %v, northing first %v (%v), want %+v",
				c.claim, crs.SRID, order, crs.NorthingFirst, err, c)
		}
	}
}

func TestClaimsThatNameNoCRS(t *testing.T) {
	t.Parallel()
	for _, claim := range []string{
		"", " ", "WGS84", "WGS 84", "4326", "EPSG", "EPSG:", ":4326", "EPSG:9999", "EPSG:0", "EPSG:-1", "EPSG:04326", "EPSG:4326.0",
		"EPSG:4326:1", "EPSG::4326", "EPSG:99999999999999999999", "EPSG:４３２６", "FOO:4326", "OGC:CRS99", "OGC:", "CRS",
		"urn:ogc:def:crs:EPSG::", "urn:ogc:def:crs:EPSG:abc:4326", "urn:ogc:def:crs,crs:EPSG::4326,crs:EPSG::5773", "urn:ogc:def:datum:EPSG::6326",
		"http://example.com/def/crs/EPSG/0/4326", "http://www.opengis.net/def/crs/EPSG/4326", "http://www.opengis.net.evil.test/def/crs/EPSG/0/4326",
		"http://www.opengis.net/def/uom/EPSG/0/9001", "<EPSG:4326>", "<http://www.opengis.net/def/crs/EPSG/0/4326", "<>", "<b>WGS84?</b>",
		"EPSG:4326\x00", "\xff\xfe", strings.Repeat("E", 1<<20), `{"type":"link"}`, "'; drop table events; --",
	} {
		_, _, err := LookupCRS(claim)
		if !errors.Is(err, ErrUnknownCRS) || errors.Is(err, ErrUnusableCRS) {
			t.Errorf("%.40q: got %v", claim, err)
		}
		if err == nil {
			continue
		}
		if text := err.Error(); len(text) > 150 || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Errorf("%.40q: a message nobody can store: %q", claim, text)
		}
	}
}

func TestCRSsWithoutMapCoordinatesAreUnusable(t *testing.T) {
	t.Parallel()
	for claim, why := range map[string]string{
		"EPSG:4978":   "geocentric",
		"EPSG:5773":   "vertical",
		"ESRI:104905": "not on Earth",
		"ESRI:103877": "not on Earth",
		"ESRI:4812":   "ambiguous",
	} {
		_, _, err := LookupCRS(claim)
		if !errors.Is(err, ErrUnusableCRS) || !errors.Is(err, ErrUnknownCRS) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %s", claim, err, why)
		}
	}
}

func mustLookup(t *testing.T, claim string) CRS {
	t.Helper()
	crs, _, err := LookupCRS(claim)
	if err != nil {
		t.Fatal(err)
	}
	return crs
}

func TestAreasOfUseAreWidenedBySixDegrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, claim string
		lon, lat    float64
		want        bool
	}{
		{"inside UTM 33", "EPSG:32633", 15, 42, true},
		{"Sweden's east in UTM 33", "EPSG:32633", 23.9, 66, true},
		{"beyond the margin of UTM 33", "EPSG:32633", 24.1, 66, false},
		{"UTM 33 with its axes swapped", "EPSG:32633", 50, 3.7, false},
		{"Finnmark at 31 east in UTM 33, which is too far", "EPSG:25833", 31, 70, false},
		{"the margin south of UTM 33's equator", "EPSG:32633", 15, -5.9, true},
		{"beyond it", "EPSG:32633", 15, -6.1, false},
		{"New Zealand", "EPSG:2193", 174.8, -41.3, true},
		{"the Chathams across the antimeridian", "EPSG:2193", -176.5, -44, true},
		{"the same as 183.5", "EPSG:2193", 183.5, -44, true},
		{"beyond the margin across the antimeridian", "EPSG:2193", -175.3, -41, false},
		{"Portugal in New Zealand's", "EPSG:2193", -9, -41, false},
		{"UTM 60 south, east of the antimeridian", "EPSG:32760", -178, -40, true},
		{"an area across the antimeridian, west part", "EPSG:3832", 150, 0, true},
		{"an area across the antimeridian, east part", "EPSG:3832", -100, 0, true},
		{"an area across the antimeridian, its gap", "EPSG:3832", 0, 0, false},
		{"its west margin", "EPSG:3832", 92.8, 0, true},
		{"its east margin", "EPSG:3832", -62.1, 0, true},
		{"beyond its east margin", "EPSG:3832", -61.9, 0, false},
		{"Null Island under web Mercator", "EPSG:3857", 0, 0, true},
		{"the pole under web Mercator, in the margin", "EPSG:3857", 0, 90, true},
		{"a latitude beyond the pole", "EPSG:4326", 0, 90.01, false},
		{"a longitude a little beyond 180", "EPSG:4326", 181, 0, true},
		{"a longitude of another turn", "EPSG:4326", -346.7, 52.5, false},
		{"NaN", "EPSG:4326", math.NaN(), 0, false},
		{"infinity", "EPSG:4326", 0, math.Inf(1), false},
		{"a CRS whose area nobody knows", "EPSG:31461", 100, 0, true},
	} {
		if got := mustLookup(t, c.claim).Contains(c.lon, c.lat); got != c.want {
			t.Errorf("%s: %s contains %v, %v: got %v", c.name, c.claim, c.lon, c.lat, got)
		}
	}
}

func TestACRSIsInEachOfItsAreas(t *testing.T) {
	t.Parallel()
	// Tests of a single area pass if only one is read.
	crs := CRS{Areas: []Area{{0, 0, 1, 1}, {100, 0, 101, 1}}}
	if !crs.Contains(100, 0) || !crs.Contains(0, 0) || crs.Contains(50, 0) {
		t.Error("an area is left out")
	}
	if crs := mustLookup(t, "EPSG:3035"); len(crs.Areas) == 0 {
		t.Error("EPSG:3035 has no area")
	}
}

func TestTheSameCRSByTwoNames(t *testing.T) {
	t.Parallel()
	if !mustLookup(t, "CRS84").Same(mustLookup(t, "EPSG:4326")) || !mustLookup(t, "ESRI:102100").Same(mustLookup(t, "EPSG:3857")) {
		t.Error("aliases differ")
	}
	if !mustLookup(t, "EPSG:5972").Same(mustLookup(t, "EPSG:25832")) {
		t.Error("a compound CRS is not its horizontal part")
	}
	etrs, wgs := mustLookup(t, "EPSG:25833"), mustLookup(t, "EPSG:32633")
	if etrs.Same(wgs) || wgs.Same(etrs) {
		t.Error("ETRS89 and WGS 84 are one")
	}
}

func TestTheTableHoldsWhatPROJHas(t *testing.T) {
	t.Parallel()
	usable, kinds := 0, map[string]int{}
	for key, e := range crsTable() {
		if e.Name == "" || e.SRID <= 0 || key.code != e.Code {
			t.Fatalf("%v: %+v", key, e)
		}
		for _, a := range e.Areas {
			if a.South > a.North || a.South < -90 || a.North > 90 || math.Abs(a.West) > 180 || math.Abs(a.East) > 180 {
				t.Errorf("%v: %v", key, a)
			}
		}
		if kinds[e.unusable]++; e.unusable == "" {
			usable++
		}
	}
	if usable < 9000 || !strings.HasPrefix(crsText, "# ") || !strings.Contains(crsText[:400], "EPSG.VERSION") {
		t.Errorf("%d usable CRSs, %v", usable, kinds)
	}
	if crs := mustLookup(t, "EPSG:4326"); !crs.Geographic || crs.Name != "WGS 84" || crs.Authority != "EPSG" {
		t.Errorf("%+v", crs)
	}
	if crs := mustLookup(t, "EPSG:3857"); crs.Geographic {
		t.Errorf("%+v", crs)
	}
}

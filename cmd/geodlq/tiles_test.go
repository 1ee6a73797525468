package main

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// layer is a layer of a Mapbox vector tile (MVT 2.1), as far as tests look.
type layer struct {
	name     string
	features []map[string]any
}

// readTile decodes a tile's layers and the properties of their features.
func readTile(t testing.TB, tile []byte) []layer {
	t.Helper()
	var layers []layer
	eachField(t, tile, func(num protowire.Number, value []byte, _ uint64) {
		if num == 3 {
			layers = append(layers, readLayer(t, value))
		}
	})
	return layers
}

func readLayer(t testing.TB, text []byte) layer {
	var l layer
	var keys []string
	var values []any
	var features [][]byte
	eachField(t, text, func(num protowire.Number, value []byte, _ uint64) {
		switch num {
		case 1:
			l.name = string(value)
		case 2:
			features = append(features, value)
		case 3:
			keys = append(keys, string(value))
		case 4:
			values = append(values, readValue(t, value))
		}
	})
	for _, f := range features {
		properties := map[string]any{}
		eachField(t, f, func(num protowire.Number, value []byte, _ uint64) {
			if num != 2 {
				return
			}
			for len(value) > 0 {
				k, n := protowire.ConsumeVarint(value)
				v, m := protowire.ConsumeVarint(value[n:])
				value = value[n+m:]
				properties[keys[k]] = values[v]
			}
		})
		l.features = append(l.features, properties)
	}
	return l
}

func readValue(t testing.TB, text []byte) any {
	var out any
	eachField(t, text, func(num protowire.Number, value []byte, n uint64) {
		switch num {
		case 1:
			out = string(value)
		case 4, 5:
			out = float64(n)
		case 6:
			out = float64(protowire.DecodeZigZag(n))
		}
	})
	return out
}

func eachField(t testing.TB, text []byte, fn func(num protowire.Number, value []byte, n uint64)) {
	t.Helper()
	for len(text) > 0 {
		num, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			t.Fatal("not a protobuf")
		}
		text = text[n:]
		switch kind {
		case protowire.BytesType:
			value, m := protowire.ConsumeBytes(text)
			fn(num, value, 0)
			n = m
		case protowire.VarintType:
			v, m := protowire.ConsumeVarint(text)
			fn(num, nil, v)
			n = m
		default:
			n = protowire.ConsumeFieldValue(num, kind, text)
		}
		if n < 0 {
			t.Fatal("not a protobuf")
		}
		text = text[n:]
	}
}

// countInTile sums the counts of cells and letters.
func countInTile(t testing.TB, tile []byte) float64 {
	sum := 0.0
	for _, l := range readTile(t, tile) {
		for _, f := range l.features {
			if n, ok := f["count"].(float64); ok {
				sum += n
				if l.name != "cells" && l.name != "letters" {
					t.Errorf("layer %s carries count", l.name)
				}
			}
		}
	}
	return sum
}

func queryOf(href string) url.Values {
	u, err := url.Parse(href)
	if err != nil {
		return nil
	}
	return u.Query()
}

func TestTilesShowLettersWithTheirShapesAndFlaws(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("bowtie", strings.ReplaceAll(strings.ReplaceAll(bowtie, "12", "10.02"), "52", "50.02"))
	s.settle("bowtie")
	s.report(map[string]any{"work_key": "tile", "tile": map[string]int{"z": 12, "x": 2162, "y": 1390}}, "")
	// 10.01 50.01 at zoom 12.
	a := s.get("/tiles/12/2161/1388.mvt")
	names := map[string]int{}
	for _, l := range readTile(t, a.body) {
		names[l.name] += len(l.features)
		for _, f := range l.features {
			if f["id"] == nil {
				t.Errorf("a feature of %s has no id: %v", l.name, f)
			}
		}
	}
	if names["letters"] != 1 || names["shapes"] < 1 || names["flaws"] != 1 {
		t.Errorf("%v", names)
	}
	if a.header.Get("Content-Type") != "application/vnd.mapbox-vector-tile" {
		t.Error(a.header)
	}
	again := s.do("GET", "/tiles/12/2161/1388.mvt", map[string]string{"If-None-Match": a.header.Get("ETag")}, nil)
	if again.status != 304 || len(again.body) != 0 {
		t.Errorf("again: %d", again.status)
	}
	if a := s.get("/tiles/12/0/0.mvt"); a.status != 204 {
		t.Errorf("an empty tile: %d", a.status)
	}
	for _, path := range []string{"/tiles/1/2/0.mvt", "/tiles/23/0/0.mvt", "/tiles/-1/0/0.mvt", "/tiles/a/0/0.mvt", "/tiles/00/0/0.mvt", "/tiles/0/0/0.mvt?stgae=x", "/tiles/99999999999999999999/0/0.mvt"} {
		if a := s.get(path); a.status != 400 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := s.get("/tiles/0/0/0.png"); a.status != 404 {
		t.Errorf("a picture: %d", a.status)
	}
	cells := readTile(t, s.get("/tiles/0/0/0.mvt").body)
	if len(cells) != 1 || cells[0].name != "cells" || len(cells[0].features) == 0 {
		t.Fatalf("%v", cells)
	}
	for _, f := range cells[0].features {
		if _, ok := f["count"].(float64); !ok || f["class"] == nil {
			t.Errorf("%v", f)
		}
	}
	if a := s.get("/tiles.json?class=oom"); a.status != 200 || !strings.Contains(string(a.body), "/tiles/{z}/{x}/{y}.mvt?class=oom") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestACrowdedTileIsSmallAtEveryZoom has an incident at one site: more letters than a tile
// could name.
func TestACrowdedTileIsSmallAtEveryZoom(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	const crowd = 8000
	s.exec(`insert into dead_letters (work_key, kind, task, source, stage, class, error, fingerprint, anchor, geom, located_by, status)
		select 'k' || i, 'event', 't', 's', 'validate', (array['invalid_geometry', 'oom'])[1 + i % 2], 'e', 'g', p, p, 'geometry', 'pending'
		from generate_series(1, $1) i, lateral (select ST_SetSRID(ST_MakePoint(10.0001 + i * 1e-10, 50.0001), 4326) p) q`, crowd)
	for z := 8; z <= 22; z++ {
		tiles := math.Exp2(float64(z))
		x := math.Floor((10.0001 + 180) / 360 * tiles)
		y := math.Floor((0.5 - math.Log(math.Tan(math.Pi/4+50.0001*math.Pi/360))/(2*math.Pi)) * tiles)
		for filter, want := range map[string]float64{"": crowd, "?class=oom&q=e": crowd / 2} {
			a := s.get(fmt.Sprintf("/tiles/%d/%.0f/%.0f.mvt%s", z, x, y, filter))
			if n := countInTile(t, a.body); a.status != 200 || n != want || len(a.body) > 150_000 {
				t.Errorf("z%d%s: %d, %v letters in %d bytes", z, filter, a.status, n, len(a.body))
			}
		}
	}
}

func TestATileSurvivesWhatCannotBeDrawn(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i, geometry := range []string{
		"POLYGON((-180 -90,180 -90,180 -60,-180 -60,-180 -90))", "POLYGON((0 91,1 91,1 92,0 91))", "LINESTRING(-200 0,200 0)",
		"GEOMETRYCOLLECTION(POINT(0 0),LINESTRING(0 0,1 1),POLYGON((0 0,1 1,1 0,0 1,0 0)))", "POLYGON EMPTY", "POLYGON((0 0,0 0,0 0,0 0))",
		"MULTIPOLYGON(((0 0,4 0,4 4,0 4,0 0)),((2 2,6 2,6 6,2 6,2 2)))",
	} {
		s.exec(`insert into dead_letters (work_key, kind, source, stage, class, error, fingerprint, geom, anchor, located_by)
			values ($1, 'event', 'default', 'validate', 'invalid_geometry', 'e', 'g', ST_GeomFromText($2, 4326), ST_SetSRID(ST_MakePoint(0.0001, 0.0001), 4326), 'geometry')`,
			fmt.Sprintf("hard-%d", i), geometry)
	}
	for z := range 17 {
		half := 1 << z / 2
		path := fmt.Sprintf("/tiles/%d/%d/%d.mvt", z, half, max(half-1, 0))
		a := s.get(path)
		if a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		if n := countInTile(t, a.body); n != 7 {
			t.Errorf("%s counts %v", path, n)
		}
	}
}

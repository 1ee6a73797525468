package geo

import (
	"math"
	"testing"

	"github.com/paulmach/orb"
)

func TestAnchors(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	square := func(x, y, size float64) orb.Ring {
		return orb.Ring{{x, y}, {x + size, y}, {x + size, y + size}, {x, y + size}, {x, y}}
	}
	for _, c := range []struct {
		name string
		g    orb.Geometry
		want orb.Point
	}{
		{"a point", orb.Point{1, 2}, orb.Point{1, 2}},
		{"points", orb.MultiPoint{{1, 2}, {3, 4}}, orb.Point{1, 2}},
		{"a line, by its middle vertex", orb.LineString{{0, 0}, {1, 5}, {9, 9}}, orb.Point{1, 5}},
		{"the longest of lines", orb.MultiLineString{{{0, 0}, {1, 0}, {2, 0}}, {{0, 5}, {50, 5}, {90, 5}}}, orb.Point{50, 5}},
		{"a line of one position", orb.LineString{{3, 4}}, orb.Point{3, 4}},
		{"a square", orb.Polygon{square(0, 0, 4)}, orb.Point{2, 2}},
		{"a donut, in its wider side", orb.Polygon{square(0, 0, 10), square(2, 2, 4)}, orb.Point{8, 4}},
		{"a donut's hole is never the place", orb.Polygon{square(0, 0, 10), square(1, 1, 8)}, orb.Point{0.5, 5}},
		{"a hole outside is no inside", orb.Polygon{square(0, 0, 2), square(10, 0, 2)}, orb.Point{1, 1}},
		{"a bowtie", orb.Polygon{{{10, 50}, {12, 52}, {12, 50}, {10, 52}, {10, 50}}}, orb.Point{10.5, 51}},
		{"an open ring", orb.Polygon{{{0, 0}, {4, 0}, {4, 4}, {0, 4}}}, orb.Point{2, 2}},
		{"a flat ring, by its first vertex", orb.Polygon{{{1, 1}, {2, 1}, {3, 1}, {1, 1}}}, orb.Point{1, 1}},
		{"a ring of one place", orb.Polygon{{{1, 1}, {1, 1}, {1, 1}, {1, 1}}}, orb.Point{1, 1}},
		{"the widest part", orb.MultiPolygon{{square(0, 0, 1)}, {square(10, 10, 6)}, {square(30, 30, 2)}}, orb.Point{13, 13}},
		{"a part with an inside before a flat one", orb.MultiPolygon{{{{1, 1}, {2, 1}, {1, 1}, {1, 1}}}, {square(10, 10, 2)}}, orb.Point{11, 11}},
		{"a collection's polygon before its lines and points", orb.Collection{orb.Point{9, 9}, orb.LineString{{0, 0}, {99, 0}}, orb.Collection{orb.Polygon{square(0, 0, 2)}}}, orb.Point{1, 1}},
		{"a collection's line before its points", orb.Collection{orb.Point{9, 9}, orb.LineString{{0, 0}, {5, 0}, {6, 0}}}, orb.Point{5, 0}},
		{"a collection's flat polygon before its lines", orb.Collection{orb.LineString{{0, 0}, {5, 0}}, orb.Polygon{{{1, 1}, {1, 1}, {1, 1}, {1, 1}}}}, orb.Point{1, 1}},
		{"a ring", square(0, 0, 4), orb.Point{2, 2}},
		{"a bound", orb.Bound{Min: orb.Point{0, 0}, Max: orb.Point{4, 2}}, orb.Point{2, 1}},
		{"a NaN vertex is passed over", orb.LineString{{1, 1}, {nan, 0}, {3, 3}}, orb.Point{1, 1}},
		{"a NaN in a ring is passed over", orb.Polygon{{{nan, 0}, {4, 0}, {4, 4}, {4, 0}, {nan, 0}}}, orb.Point{4, 0}},
		{"a ring as wide as float64", orb.Polygon{square(-math.MaxFloat64/2, -1, math.MaxFloat64)}, orb.Point{0, math.MaxFloat64 / 2}},
	} {
		got, ok := Anchor(c.g)
		if !ok || math.Abs(got[0]-c.want[0]) > 1e-9 || math.Abs(got[1]-c.want[1]) > 1e-9*math.Max(1, math.Abs(c.want[1])) {
			t.Errorf("%s: got %v %v, want %v", c.name, got, ok, c.want)
		}
	}
}

func TestNothingHasNoAnchor(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, g := range []orb.Geometry{
		nil, orb.Polygon{}, orb.Polygon{{}}, orb.Polygon{nil, {}}, orb.MultiPolygon{{}}, orb.LineString{}, orb.MultiLineString{{}}, orb.MultiPoint{},
		orb.Collection{}, orb.Collection{nil, orb.Collection{}}, orb.Point{nan, 1}, orb.Point{math.Inf(1), 1}, orb.LineString{{nan, nan}}, orb.Polygon{{{nan, nan}, {1, nan}}},
	} {
		if at, ok := Anchor(g); ok {
			t.Errorf("%v: got %v", g, at)
		}
	}
}

func TestSwapAxesLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	ring := orb.Ring{{0, 1}, {2, 3}, {4, 5}, {0, 1}}
	g := orb.Collection{
		orb.Point{1, 2}, orb.MultiPoint{{1, 2}}, orb.LineString{{1, 2}, {3, 4}}, orb.MultiLineString{{{1, 2}, {3, 4}}}, ring,
		orb.Polygon{ring}, orb.MultiPolygon{{ring}}, orb.Bound{Min: orb.Point{1, 2}, Max: orb.Point{3, 4}}, orb.Collection{nil},
	}
	swapped := SwapAxes(g).(orb.Collection)
	if swapped[0] != (orb.Point{2, 1}) || swapped[5].(orb.Polygon)[0][1] != (orb.Point{3, 2}) || swapped[7].(orb.Bound).Max != (orb.Point{4, 3}) {
		t.Errorf("got %v", swapped)
	}
	if ring[1] != (orb.Point{2, 3}) {
		t.Errorf("the original is now %v", ring)
	}
	var back, want []orb.Point
	EachPoint(SwapAxes(swapped), func(p orb.Point) bool { back = append(back, p); return true })
	EachPoint(g, func(p orb.Point) bool { want = append(want, p); return true })
	if len(back) != len(want) || len(want) != 23 {
		t.Fatalf("got %d vertices, want %d", len(back), len(want))
	}
	for i := range back {
		if back[i] != want[i] {
			t.Errorf("vertex %d: got %v, want %v", i, back[i], want[i])
		}
	}
	if SwapAxes(nil) != nil {
		t.Error("nothing became something")
	}
}

func TestEachPointStopsWhenTold(t *testing.T) {
	t.Parallel()
	n := 0
	EachPoint(orb.Collection{orb.MultiPoint{{1, 2}, {3, 4}}, orb.Point{5, 6}}, func(orb.Point) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("got %d calls", n)
	}
}

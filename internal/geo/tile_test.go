package geo

import (
	"math"
	"testing"
)

func TestTilePolygonIsTheExtentOfTheTile(t *testing.T) {
	world := TilePolygon(0, 0, 0).Bound()
	if world.Min.X() != -180 || world.Max.X() != 180 || math.Abs(world.Max.Y()-85.0511287798066) > 1e-9 || math.Abs(world.Min.Y()+85.0511287798066) > 1e-9 {
		t.Errorf("0/0/0 is %v", world)
	}
	// Berlin's tile at zoom 10, from the slippy map's own formula.
	b := TilePolygon(10, 550, 335).Bound()
	if b.Min.X() > 13.4 || b.Max.X() < 13.4 || b.Min.Y() > 52.5 || b.Max.Y() < 52.5 {
		t.Errorf("10/550/335 is %v, which does not hold 13.4 52.5", b)
	}
}

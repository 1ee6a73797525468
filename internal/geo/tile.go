package geo

import (
	"math"

	"github.com/paulmach/orb"
)

// TilePolygon is the extent of a tile of the Web Mercator quad (OGC 17-083r4,
// WebMercatorQuad) in EPSG:4326, x = longitude. x and y must be 0 to 2^z - 1.
func TilePolygon(z, x, y int) orb.Polygon {
	n := math.Exp2(float64(z))
	lon := func(x int) float64 { return float64(x)/n*360 - 180 }
	lat := func(y int) float64 {
		return math.Atan(math.Sinh(math.Pi*(1-2*float64(y)/n))) * 180 / math.Pi
	}
	return orb.Bound{Min: orb.Point{lon(x), lat(y + 1)}, Max: orb.Point{lon(x + 1), lat(y)}}.ToPolygon()
}

package geo

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./gen

// CRS is a horizontal coordinate reference system on Earth, as PROJ describes it.
type CRS struct {
	Authority string // "EPSG" or "ESRI"
	Code      int    // the authority's; of an alias, that of what it stands for
	// SRID is PostGIS's number. Of a compound CRS it is that of the horizontal
	// part, and of a 3D geographic one that of the 2D one of its datum, since Z
	// is dropped.
	SRID       int
	Name       string
	Geographic bool // ordinates are angles
	// NorthingFirst tells that the authority's axes are latitude, longitude or
	// northing, easting. CRS84 and its like are x, y.
	NorthingFirst bool
	Areas         []Area // where it may be used; empty where PROJ does not say
}

// Area is an extent in degrees; West > East crosses the antimeridian.
type Area struct{ West, South, East, North float64 }

// areaMargin is how far beyond its areas a CRS is taken to be in use, in
// degrees: national data runs over the edge of its zone as a rule.
const areaMargin = 6

// Contains reports whether a place, in degrees, is in one of the CRS's areas of
// use widened by 6 degrees on each side, across the antimeridian too. Latitudes
// beyond 90, longitudes beyond 186 and NaN are in none. A CRS without known
// areas contains every place on Earth.
func (c CRS) Contains(lon, lat float64) bool {
	if !(math.Abs(lon) <= 180+areaMargin && math.Abs(lat) <= 90) {
		return false
	}
	for _, a := range c.Areas {
		if a.contains(lon, lat) {
			return true
		}
	}
	return len(c.Areas) == 0
}

func (a Area) contains(lon, lat float64) bool {
	if lat < a.South-areaMargin || lat > a.North+areaMargin {
		return false
	}
	width := a.East - a.West
	if width < 0 {
		width += 360
	}
	if width+2*areaMargin >= 360 {
		return true
	}
	east := math.Mod(lon-(a.West-areaMargin), 360)
	if east < 0 {
		east += 360
	}
	return east <= width+2*areaMargin
}

// Same reports whether coordinates in x, y order mean the same place in both.
func (c CRS) Same(other CRS) bool { return c.SRID == other.SRID }

type crsKey struct {
	authority string
	code      int
}

type crsEntry struct {
	CRS
	unusable string // why, of a CRS that holds no geometries
}

//go:embed crs.tsv
var crsText string

// crsTable is parsed at the first claim, in a few milliseconds.
var crsTable = sync.OnceValue(func() map[crsKey]crsEntry { return parseTable(crsText) })

// parseTable reads what the gen command wrote; lines it could not have written
// are left out.
func parseTable(text string) map[crsKey]crsEntry {
	table := make(map[crsKey]crsEntry, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 7 {
			continue
		}
		code, errCode := strconv.Atoi(f[1])
		srid, errSRID := strconv.Atoi(f[4])
		if errCode != nil || errSRID != nil {
			continue
		}
		e := crsEntry{CRS: CRS{
			Authority: f[0], Code: code, SRID: srid, Name: f[5],
			Geographic: f[2] == "geographic", NorthingFirst: f[3] == "NE", Areas: parseAreas(f[6]),
		}}
		if f[2] != "geographic" && f[2] != "projected" {
			e.unusable = f[2]
		}
		table[crsKey{f[0], code}] = e
	}
	return table
}

func parseAreas(text string) []Area {
	if text == "" {
		return nil
	}
	areas := make([]Area, 0, strings.Count(text, ";")+1)
	for one := range strings.SplitSeq(text, ";") {
		var edges [4]float64
		i := 0
		for s := range strings.FieldsSeq(one) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || i == len(edges) {
				return areas
			}
			edges[i] = v
			i++
		}
		areas = append(areas, Area{edges[0], edges[1], edges[2], edges[3]})
	}
	return areas
}

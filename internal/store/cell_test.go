package store_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"geodlq/internal/pgtest"
)

// cellOf is the quadkey by the textbook, bit by bit.
func cellOf(lon, lat float64) int64 {
	fx := (lon + 180) / 360
	fx -= math.Floor(fx)
	lat = max(-85.0511287798066, min(85.0511287798066, lat))
	fy := 0.5 - math.Log(math.Tan(math.Pi/4+lat*math.Pi/360))/(2*math.Pi)
	x, y := int64(min(fx*(1<<30), 1<<30-1)), int64(max(0, min(fy*(1<<30), 1<<30-1)))
	var cell int64
	for bit := range 30 {
		cell |= x>>bit&1<<(2*bit) | y>>bit&1<<(2*bit+1)
	}
	return cell
}

func TestCellIsTheQuadkeyAndComesApartAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 300 {
		lon, lat := r.Float64()*360-180, r.Float64()*180-90
		switch i {
		case 0:
			lon, lat = 180, 0
		case 1:
			lon, lat = -180, 90
		case 2:
			lon, lat = 0, -90
		}
		var cell, x, y int64
		err := pool.QueryRow(t.Context(), `select c, geodlq_squeeze(c), geodlq_squeeze(c >> 1)
			from (select geodlq_cell(ST_SetSRID(ST_MakePoint($1, $2), 4326)) as c offset 0) s`, lon, lat).Scan(&cell, &x, &y)
		if err != nil {
			t.Fatal(err)
		}
		want := cellOf(lon, lat)
		var wantX, wantY int64
		for bit := range 30 {
			wantX |= want >> (2 * bit) & 1 << bit
			wantY |= want >> (2*bit + 1) & 1 << bit
		}
		// The last bits are the two libraries' own.
		if abs(wantX-x) > 1 || abs(wantY-y) > 1 {
			t.Fatalf("%v %v: cell %x, x %d, y %d; want %x, %d, %d", lon, lat, cell, x, y, want, wantX, wantY)
		}
	}
}

func abs(n int64) int64 { return max(n, -n) }

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

func TestCellIsTheQuadkey(t *testing.T) {
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
		var cell int64
		if err := pool.QueryRow(t.Context(), "select geodlq_cell(ST_SetSRID(ST_MakePoint($1, $2), 4326))", lon, lat).Scan(&cell); err != nil {
			t.Fatal(err)
		}
		// The last bits are the two libraries' own.
		x, y := apart(cell)
		wantX, wantY := apart(cellOf(lon, lat))
		if abs(wantX-x) > 1 || abs(wantY-y) > 1 {
			t.Fatalf("%v %v: cell %x is x %d, y %d; want %d, %d", lon, lat, cell, x, y, wantX, wantY)
		}
	}
}

// apart undoes the interleaving.
func apart(cell int64) (x, y int64) {
	for bit := range 30 {
		x |= cell >> (2 * bit) & 1 << bit
		y |= cell >> (2*bit + 1) & 1 << bit
	}
	return x, y
}

func abs(n int64) int64 { return max(n, -n) }

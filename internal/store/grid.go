package store

import (
	"geodlq/internal/dlq"
	"geodlq/internal/mvt"
)

// cellGrid counts by subcell of a tile, numbered by quadkey, and by class. A cell is
// drawn in the middle of what it counts, as far as subcells tell.
type cellGrid struct {
	counts [1 << (2 * subcellsPerTile)][]int64 // nil: none
}

func (g *cellGrid) add(subcell, slot int, n int64) {
	if g.counts[subcell] == nil {
		g.counts[subcell] = make([]int64, classSlots)
	}
	g.counts[subcell][slot] += n
}

// tile is the grid as layer cells, empty where nothing is counted.
func (g *cellGrid) tile() []byte {
	layer := mvt.NewLayer("cells")
	const within = 1 << (2 * (subcellsPerTile - cellsPerTile))
	for first := 0; first < len(g.counts); first += within {
		g.drawCell(layer, first, within)
	}
	return layer.Bytes()
}

func (g *cellGrid) drawCell(layer *mvt.Layer, first, within int) {
	byClass := make([]int64, classSlots)
	var total, x, y int64
	for subcell := first; subcell < first+within; subcell++ {
		var n int64
		for slot, of := range g.counts[subcell] {
			n += of
			byClass[slot] += of
		}
		// The middle of a subcell lies at an odd number of its halves.
		total += n
		x += n * int64(2*unzip(subcell)+1)
		y += n * int64(2*unzip(subcell>>1)+1)
	}
	if total == 0 {
		return
	}
	const half = mvt.Extent >> (subcellsPerTile + 1)
	p := mvt.Point{X: int(x * half / total), Y: int(y * half / total)}
	layer.Number(&p, "count", uint64(total))
	if most := mostOf(byClass); most >= 0 {
		layer.Text(&p, "class", string(dlq.Classes[most]))
	}
	for slot, class := range dlq.Classes {
		if byClass[slot] != 0 {
			layer.Number(&p, string(class), uint64(byClass[slot]))
		}
	}
	layer.Add(p)
}

// mostOf is the class with the largest count, the first of equals; -1 for none.
func mostOf(byClass []int64) int {
	most := -1
	for slot := range dlq.Classes {
		if byClass[slot] > 0 && (most < 0 || byClass[slot] > byClass[most]) {
			most = slot
		}
	}
	return most
}

// unzip is every other bit of a quadkey of subcells, from the lowest.
func unzip(key int) int {
	var n int
	for bit := range subcellsPerTile {
		n |= key >> (2 * bit) & 1 << bit
	}
	return n
}

// Package tally counts letters by columns: signed counts of keys, packed into
// blocks, sorted into runs that are merged like a log-structured tree. Counts of one
// key add up over blocks and runs, so that a change is two entries, one of them
// negative, and nothing is ever looked for.
package tally

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Zoom is the zoom of an entry's cell.
const Zoom = 16

// BlockEntries is how many entries a block holds at most.
const BlockEntries = 8192

// slab is the time, in seconds, within which entries are sorted by place: what is
// asked of a day, or of a region, lies in few blocks.
const slab = 86400

// Entry is a key with how many letters it counts.
type Entry struct {
	Cell     uint32 // quadkey at Zoom; 0 for what has no place
	Facet    uint32
	Second   uint32 // since 1970
	Attempts uint32
	Weight   int32
}

func compare(a, b *Entry) int {
	if c := cmp.Compare(a.Second/slab, b.Second/slab); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Cell, b.Cell); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Second, b.Second); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Facet, b.Facet); c != 0 {
		return c
	}
	return cmp.Compare(a.Attempts, b.Attempts)
}

// Sort puts entries in the order of a run, with equal keys added up and those that
// count nothing left out. It reuses the slice.
func Sort(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int { return compare(&a, &b) })
	kept := entries[:0]
	for _, e := range entries {
		kept = add(kept, e)
	}
	return trim(kept)
}

// add appends an entry of a sorted sequence.
func add(entries []Entry, e Entry) []Entry {
	if n := len(entries); n > 0 {
		if last := &entries[n-1]; compare(last, &e) == 0 {
			last.Weight += e.Weight
			return entries
		}
	}
	return append(trim(entries), e)
}

// trim drops a last entry that counts nothing.
func trim(entries []Entry) []Entry {
	if n := len(entries); n > 0 && entries[n-1].Weight == 0 {
		return entries[:n-1]
	}
	return entries
}

// Block is up to BlockEntries entries by column, of four bytes each, little-endian.
// A column that was not read is nil.
type Block struct {
	Entries int

	// The least and the greatest, both within.
	CellFrom, CellTo     uint32
	SecondFrom, SecondTo uint32

	Cells, Facets, Seconds, Attempts []byte
	Weights                          []byte // nil: all 1
}

// Pack makes a block of entries, at least one.
func Pack(entries []Entry) *Block {
	n := len(entries)
	b := &Block{
		Entries: n, CellFrom: entries[0].Cell, CellTo: entries[0].Cell,
		SecondFrom: entries[0].Second, SecondTo: entries[0].Second,
		Cells: make([]byte, 0, 4*n), Facets: make([]byte, 0, 4*n), Seconds: make([]byte, 0, 4*n), Attempts: make([]byte, 0, 4*n),
	}
	weighted := false
	for _, e := range entries {
		b.CellFrom, b.CellTo = min(b.CellFrom, e.Cell), max(b.CellTo, e.Cell)
		b.SecondFrom, b.SecondTo = min(b.SecondFrom, e.Second), max(b.SecondTo, e.Second)
		b.Cells = binary.LittleEndian.AppendUint32(b.Cells, e.Cell)
		b.Facets = binary.LittleEndian.AppendUint32(b.Facets, e.Facet)
		b.Seconds = binary.LittleEndian.AppendUint32(b.Seconds, e.Second)
		b.Attempts = binary.LittleEndian.AppendUint32(b.Attempts, e.Attempts)
		weighted = weighted || e.Weight != 1
	}
	if weighted {
		b.Weights = make([]byte, 0, 4*n)
		for _, e := range entries {
			b.Weights = binary.LittleEndian.AppendUint32(b.Weights, uint32(e.Weight))
		}
	}
	return b
}

// At is entry i. Columns that are nil read as zero.
func (b *Block) At(i int) Entry {
	return Entry{
		Cell: column(b.Cells, i, 0), Facet: column(b.Facets, i, 0), Second: column(b.Seconds, i, 0),
		Attempts: column(b.Attempts, i, 0), Weight: int32(column(b.Weights, i, 1)),
	}
}

func column(c []byte, i int, absent uint32) uint32 {
	if c == nil {
		return absent
	}
	return binary.LittleEndian.Uint32(c[4*i:])
}

// Window bounds what is counted: cells and seconds, both half-open.
type Window struct {
	CellFrom, CellTo     uint64
	SecondFrom, SecondTo uint64
}

// Everything is the window without bounds.
var Everything = Window{CellTo: 1 << 32, SecondTo: 1 << 32}

// Each calls fn for the entries of a window whose facet is selected. Facets are
// numbers into selected; those beyond it are not.
func (b *Block) Each(w Window, selected []bool, fn func(Entry)) {
	if b.apart(w) {
		return
	}
	cut := b.cutBy(w)
	for i := range b.Entries {
		facet := binary.LittleEndian.Uint32(b.Facets[4*i:])
		if uint64(facet) >= uint64(len(selected)) || !selected[facet] || cut && !b.within(i, w) {
			continue
		}
		fn(b.At(i))
	}
}

// Sum adds the weights of a window's entries to those of their facets. Facets are
// numbers into sums; those beyond it are left out.
func (b *Block) Sum(w Window, sums []int64) {
	if b.apart(w) {
		return
	}
	cut := b.cutBy(w)
	for i := range b.Entries {
		facet := binary.LittleEndian.Uint32(b.Facets[4*i:])
		if uint64(facet) >= uint64(len(sums)) || cut && !b.within(i, w) {
			continue
		}
		sums[facet] += int64(int32(column(b.Weights, i, 1)))
	}
}

// apart reports whether no entry lies in a window.
func (b *Block) apart(w Window) bool {
	return b.Cells != nil && (uint64(b.CellTo) < w.CellFrom || uint64(b.CellFrom) >= w.CellTo) ||
		b.Seconds != nil && (uint64(b.SecondTo) < w.SecondFrom || uint64(b.SecondFrom) >= w.SecondTo)
}

// cutBy reports whether some entries may lie outside of a window. Columns that were
// not read cut nothing.
func (b *Block) cutBy(w Window) bool {
	return b.Cells != nil && (uint64(b.CellFrom) < w.CellFrom || uint64(b.CellTo) >= w.CellTo) ||
		b.Seconds != nil && (uint64(b.SecondFrom) < w.SecondFrom || uint64(b.SecondTo) >= w.SecondTo)
}

func (b *Block) within(i int, w Window) bool {
	if b.Cells != nil {
		if c := uint64(binary.LittleEndian.Uint32(b.Cells[4*i:])); c < w.CellFrom || c >= w.CellTo {
			return false
		}
	}
	if b.Seconds != nil {
		if s := uint64(binary.LittleEndian.Uint32(b.Seconds[4*i:])); s < w.SecondFrom || s >= w.SecondTo {
			return false
		}
	}
	return true
}

package tally_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"geodlq/internal/tally"
)

func randomEntries(r *rand.Rand, n int) []tally.Entry {
	out := make([]tally.Entry, n)
	for i := range out {
		out[i] = tally.Entry{
			Cell: uint32(r.IntN(50)) << 20, Facet: uint32(r.IntN(5)), Second: 1_700_000_000 + uint32(r.IntN(300_000)),
			Attempts: uint32(1 + r.IntN(2)), Weight: int32(1 - 2*r.IntN(2)),
		}
		if r.IntN(2) == 0 {
			out[i].Second -= out[i].Second % 86400 // so that keys meet
		}
	}
	return out
}

// sums is what entries count by key, without those that count nothing.
func sums(entries []tally.Entry) map[tally.Entry]int32 {
	out := map[tally.Entry]int32{}
	for _, e := range entries {
		key := e
		key.Weight = 0
		if out[key] += e.Weight; out[key] == 0 {
			delete(out, key)
		}
	}
	return out
}

// write packs a sorted run, and reads it back.
func write(t *testing.T, add func(*tally.Writer) error) (blocks []*tally.Block, entries []tally.Entry) {
	t.Helper()
	w := &tally.Writer{Flush: func(b *tally.Block) error { blocks = append(blocks, b); return nil }}
	if err := add(w); err != nil {
		t.Fatal(err)
	}
	total, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for i := range b.Entries {
			entries = append(entries, b.At(i))
		}
	}
	if total != len(entries) {
		t.Errorf("%d entries, %d said", len(entries), total)
	}
	return blocks, entries
}

func runOf(t *testing.T, entries []tally.Entry) []*tally.Block {
	blocks, _ := write(t, func(w *tally.Writer) error {
		for _, e := range tally.Sort(slices.Clone(entries)) {
			if err := w.Add(e); err != nil {
				return err
			}
		}
		return nil
	})
	return blocks
}

func source(blocks []*tally.Block) tally.Source {
	return func() (*tally.Block, error) {
		if len(blocks) == 0 {
			return nil, nil
		}
		b := blocks[0]
		blocks = blocks[1:]
		return b, nil
	}
}

func TestMergedRunsCountWhatTheirEntriesCount(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, sizes := range [][]int{{0}, {1, 1}, {3 * tally.BlockEntries, 100, 7}, {tally.BlockEntries, tally.BlockEntries + 1, 0}} {
		var all []tally.Entry
		var sources []tally.Source
		for _, n := range sizes {
			entries := randomEntries(r, n)
			all = append(all, entries...)
			sources = append(sources, source(runOf(t, entries)))
		}
		blocks, merged := write(t, func(w *tally.Writer) error { return tally.Merge(sources, w) })
		if !reflect.DeepEqual(sums(merged), sums(all)) {
			t.Errorf("%v: merged runs count otherwise", sizes)
		}
		if len(sums(merged)) != len(merged) {
			t.Errorf("%v: a key stands twice or counts nothing", sizes)
		}
		for i, b := range blocks {
			if i < len(blocks)-1 && b.Entries != tally.BlockEntries {
				t.Errorf("%v: block %d has %d entries", sizes, i, b.Entries)
			}
		}
	}
}

func TestARunThatCancelsOutIsEmpty(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	entries := randomEntries(r, 20_000)
	undone := slices.Clone(entries)
	for i := range undone {
		undone[i].Weight = -undone[i].Weight
	}
	blocks, _ := write(t, func(w *tally.Writer) error {
		return tally.Merge([]tally.Source{source(runOf(t, entries)), source(runOf(t, undone))}, w)
	})
	if len(blocks) != 0 {
		t.Errorf("%d blocks", len(blocks))
	}
}

func TestAWindowCountsWhatLiesWithin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	entries := randomEntries(r, 5000)
	b := tally.Pack(entries)
	selected := []bool{true, false, true, true} // 4 is beyond
	for range 200 {
		w := tally.Window{
			CellFrom: uint64(r.IntN(50)) << 20, CellTo: uint64(r.IntN(50)) << 20,
			SecondFrom: 1_700_000_000 + uint64(r.IntN(300_000)), SecondTo: 1_700_000_000 + uint64(r.IntN(300_000)),
		}
		if r.IntN(4) == 0 {
			w.CellFrom, w.CellTo = tally.Everything.CellFrom, tally.Everything.CellTo
		}
		if r.IntN(4) == 0 {
			w.SecondFrom, w.SecondTo = tally.Everything.SecondFrom, tally.Everything.SecondTo
		}
		var want, got []tally.Entry
		for _, e := range entries {
			if int(e.Facet) < len(selected) && selected[e.Facet] && uint64(e.Cell) >= w.CellFrom && uint64(e.Cell) < w.CellTo &&
				uint64(e.Second) >= w.SecondFrom && uint64(e.Second) < w.SecondTo {
				want = append(want, e)
			}
		}
		b.Each(w, selected, func(e tally.Entry) { got = append(got, e) })
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d entries, want %d", w, len(got), len(want))
		}
		sums, all := make([]int64, len(selected)), make([]int64, len(selected)) // 4 is beyond
		b.Sum(w, sums)
		b.Each(w, []bool{true, true, true, true}, func(e tally.Entry) { all[e.Facet] += int64(e.Weight) })
		if !slices.Equal(sums, all) {
			t.Fatalf("%+v: sums %v, want %v", w, sums, all)
		}
	}
}

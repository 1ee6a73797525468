package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/tally"
)

// copyBlocks is how many blocks are held before they are written.
const copyBlocks = 64

// runWriter writes a run, and its summaries if it is large.
type runWriter struct {
	ctx    context.Context
	tx     pgx.Tx
	run    int64
	full   *tally.Writer
	world  *summary // nil: the run is small
	hours  *summary
	days   *summary
	day    uint32
	seqs   [lastKind + 1]int
	waits  [][]any
	summed bool // its column is read by versions without kindDays alone
}

// newRunWriter begins a run of about so many entries, added to full in their order.
func newRunWriter(ctx context.Context, tx pgx.Tx, entries int) (*runWriter, error) {
	w := &runWriter{ctx: ctx, tx: tx, summed: entries >= summedFrom}
	if err := tx.QueryRow(ctx, "select nextval('letter_runs')").Scan(&w.run); err != nil {
		return nil, fmt.Errorf("begin a run: %w", err)
	}
	w.full = &tally.Writer{Flush: func(b *tally.Block) error { return w.flush(kindFull, b) }}
	if w.summed {
		w.world = newSummary(func(b *tally.Block) error { return w.flush(kindWorld, b) })
		w.hours = newSummary(func(b *tally.Block) error { return w.flush(kindHours, b) })
		w.days = newSummary(func(b *tally.Block) error { return w.flush(kindDays, b) })
	}
	return w, nil
}

// summary adds up what entries have in common.
type summary struct {
	sums map[entry]int32
	out  tally.Writer
}

func newSummary(flush func(*tally.Block) error) *summary {
	return &summary{sums: map[entry]int32{}, out: tally.Writer{Flush: flush}}
}

func (s *summary) add(e entry) {
	weight := e.Weight
	e.Weight = 0
	s.sums[e] += weight
}

// write writes the sums, which follow those written before.
func (s *summary) write() error {
	entries := make([]entry, 0, len(s.sums))
	for e, weight := range s.sums {
		e.Weight = weight
		entries = append(entries, e)
	}
	clear(s.sums)
	for _, e := range tally.Sort(entries) {
		if err := s.out.Add(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *runWriter) flush(kind int, b *tally.Block) error {
	if kind == kindFull && w.summed {
		if err := w.sum(b); err != nil {
			return err
		}
	}
	row := []any{w.run, kind, w.seqs[kind], w.summed, b.Entries, int64(b.CellFrom), int64(b.CellTo), int64(b.SecondFrom), int64(b.SecondTo),
		b.Cells, b.Facets, b.Seconds, b.Attempts, b.Weights}
	switch kind {
	case kindWorld:
		row[11], row[12] = nil, nil
	case kindHours:
		row[9], row[12] = nil, nil
	case kindDays:
		row[9] = nil
	}
	w.seqs[kind]++
	w.waits = append(w.waits, row)
	if len(w.waits) < copyBlocks {
		return nil
	}
	return w.write()
}

// sum adds a block to the summaries. Hours and days are written day by day, as runs
// are sorted.
func (w *runWriter) sum(b *tally.Block) error {
	for i := range b.Entries {
		e := b.At(i)
		if d := e.Second / day; d != w.day {
			w.day = d
			if err := errors.Join(w.hours.write(), w.days.write()); err != nil {
				return err
			}
		}
		w.world.add(worldOf(e))
		w.hours.add(hourOf(e))
		w.days.add(dayOf(e))
	}
	return nil
}

// worldOf is what an entry adds to kindWorld.
func worldOf(e entry) entry {
	return entry{Cell: e.Cell &^ (1<<(2*(tally.Zoom-worldZoom)) - 1), Facet: e.Facet, Weight: e.Weight}
}

// hourOf is what an entry adds to kindHours.
func hourOf(e entry) entry {
	return entry{Second: e.Second - e.Second%hour, Facet: e.Facet, Weight: e.Weight}
}

// dayOf is what an entry adds to kindDays.
func dayOf(e entry) entry {
	return entry{Second: e.Second - e.Second%day, Facet: e.Facet, Attempts: e.Attempts, Weight: e.Weight}
}

var blockColumns = []string{"run", "kind", "seq", "summed", "entries", "cell_from", "cell_to", "second_from", "second_to",
	"cells", "facets", "seconds", "attempts", "weights"}

func (w *runWriter) write() error {
	if _, err := w.tx.CopyFrom(w.ctx, pgx.Identifier{"letter_blocks"}, blockColumns, pgx.CopyFromRows(w.waits)); err != nil {
		return fmt.Errorf("write blocks: %w", err)
	}
	w.waits = w.waits[:0]
	return nil
}

func (w *runWriter) close() error {
	if _, err := w.full.Close(); err != nil {
		return err
	}
	if w.summed {
		for _, s := range []*summary{w.hours, w.days, w.world} {
			if err := s.write(); err != nil {
				return err
			}
			if _, err := s.out.Close(); err != nil {
				return err
			}
		}
	}
	if len(w.waits) == 0 {
		return nil
	}
	return w.write()
}

package tally

// Source gives the blocks of a run in order, and nil after the last.
type Source func() (*Block, error)

// cursor is a place in a run.
type cursor struct {
	source Source
	block  *Block
	next   int
	entry  Entry
	done   bool
}

func (c *cursor) advance() error {
	for c.block == nil || c.next == c.block.Entries {
		block, err := c.source()
		if err != nil {
			return err
		}
		if block == nil {
			c.done = true
			return nil
		}
		c.block, c.next = block, 0
	}
	c.entry = c.block.At(c.next)
	c.next++
	return nil
}

// Merge writes what some runs count together as one, in their order. It holds a
// block of each.
func Merge(sources []Source, out *Writer) error {
	cursors := make([]*cursor, 0, len(sources))
	for _, source := range sources {
		c := &cursor{source: source}
		if err := c.advance(); err != nil {
			return err
		}
		if !c.done {
			cursors = append(cursors, c)
		}
	}
	for len(cursors) > 0 {
		least := 0
		for i := 1; i < len(cursors); i++ {
			if compare(&cursors[i].entry, &cursors[least].entry) < 0 {
				least = i
			}
		}
		c := cursors[least]
		if err := out.Add(c.entry); err != nil {
			return err
		}
		if err := c.advance(); err != nil {
			return err
		}
		if c.done {
			cursors = append(cursors[:least], cursors[least+1:]...)
		}
	}
	return nil
}

// Writer cuts a sorted sequence of entries into blocks. Equal keys are added up, and
// those that count nothing left out.
type Writer struct {
	Flush func(*Block) error // called for each block

	entries []Entry
	total   int
}

// Add takes the next entry.
func (w *Writer) Add(e Entry) error {
	w.entries = add(w.entries, e)
	if len(w.entries) <= BlockEntries {
		return nil
	}
	// The last one may yet be added to.
	full := w.entries[:BlockEntries]
	w.total += len(full)
	if err := w.Flush(Pack(full)); err != nil {
		return err
	}
	w.entries = append(w.entries[:0], w.entries[BlockEntries:]...)
	return nil
}

// Close writes what is left, and returns how many entries there were.
func (w *Writer) Close() (int, error) {
	w.entries = trim(w.entries)
	if len(w.entries) == 0 {
		return w.total, nil
	}
	w.total += len(w.entries)
	block := Pack(w.entries)
	w.entries = nil
	return w.total, w.Flush(block)
}

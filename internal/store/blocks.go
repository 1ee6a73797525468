package store

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/tally"
)

// blockCacheMax bounds the bytes of the blocks that are kept: those of three million
// letters, or the summaries of many more.
const blockCacheMax = 64 << 20

// blockOverhead is what a kept block costs beside its columns.
const blockOverhead = 512

// blockCache keeps blocks that were read. A block never changes under its id, and no other
// ever has it, so that there is nothing to be wrong about.
type blockCache struct {
	mu     sync.Mutex
	blocks map[int64]*tally.Block
	size   int
}

func sizeOf(b *tally.Block) int {
	return blockOverhead + len(b.Cells) + len(b.Facets) + len(b.Seconds) + len(b.Attempts) + len(b.Weights)
}

// get is a block, if it is kept with the columns that are needed.
func (c *blockCache) get(id int64, n *need) *tally.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[id]
	if b == nil || n.cells && b.Cells == nil || n.seconds && b.Seconds == nil || n.attempts && b.Attempts == nil {
		return nil
	}
	return b
}

// put keeps a block with the columns that were known of it before, and lets go of
// others, whichever come first, over the bound. It returns the block that is kept.
func (c *blockCache) put(id int64, b *tally.Block) *tally.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks = map[int64]*tally.Block{}
	}
	if old := c.blocks[id]; old != nil {
		b.Cells, b.Seconds, b.Attempts = either(b.Cells, old.Cells), either(b.Seconds, old.Seconds), either(b.Attempts, old.Attempts)
		c.size -= sizeOf(old)
	}
	c.blocks[id] = b
	c.size += sizeOf(b)
	for other, block := range c.blocks {
		if c.size <= blockCacheMax {
			break
		}
		if other != id {
			delete(c.blocks, other)
			c.size -= sizeOf(block)
		}
	}
	return b
}

func either(column, or []byte) []byte {
	if column == nil {
		return or
	}
	return column
}

// header is a block as far as it tells whether it is needed.
type header struct {
	id      int64
	kind    int
	covered bool // by a summary that suffices
}

// headersSQL selects the blocks that may count in a window: summaries where they
// suffice, and beside them what is summed only around the seconds that part an hour,
// or a day. A run that an older version wrote may lack a summary.
const headersSQL = `select b.id, b.kind, b.covered from (
		select b.*, b.run in (select run from letter_blocks where kind = nullif(@summary::smallint, 0)) as covered from letter_blocks b) b
	where case when b.kind = 0 and not b.covered
			then b.second_to >= @second_from and b.second_from < @second_to and b.cell_to >= @cell_from and b.cell_from < @cell_to
		when b.kind = 0 then exists (select from unnest(@edges::bigint[]) e where b.second_to >= e and b.second_from < e + @grain)
		else b.kind = @summary and b.second_to >= @second_from and b.second_from < @second_to end`

func (n *need) headersArgs() pgx.NamedArgs {
	return pgx.NamedArgs{
		"summary": n.summary, "edges": n.edgeStarts(), "grain": int64(n.grain()),
		"cell_from": int64(n.window.CellFrom), "cell_to": int64(n.window.CellTo),
		"second_from": int64(n.window.SecondFrom), "second_to": int64(n.window.SecondTo),
	}
}

func scanHeader(row pgx.CollectableRow) (h header, err error) {
	return h, row.Scan(&h.id, &h.kind, &h.covered)
}

// bodiesSQL reads blocks, with the columns that are needed.
const bodiesSQL = `select b.id, b.entries, b.cell_from, b.cell_to, b.second_from, b.second_to, b.facets, b.weights,
		case when @cells::boolean then b.cells end, case when @seconds::boolean then b.seconds end,
		case when @attempts::boolean then b.attempts end
	from letter_blocks b where b.id = any(@ids::bigint[])`

// blocks are those of some headers, from memory or else from the transaction.
func (s *Store) blocksOf(ctx context.Context, tx pgx.Tx, headers []header, n need) (map[int64]*tally.Block, error) {
	blocks := make(map[int64]*tally.Block, len(headers))
	var missing []int64
	for _, h := range headers {
		if b := s.blocks.get(h.id, &n); b != nil {
			blocks[h.id] = b
		} else {
			missing = append(missing, h.id)
		}
	}
	if len(missing) == 0 {
		return blocks, nil
	}
	rows, _ := tx.Query(ctx, bodiesSQL, pgx.NamedArgs{"ids": missing, "cells": n.cells, "seconds": n.seconds, "attempts": n.attempts})
	defer rows.Close()
	for rows.Next() {
		b := &tally.Block{}
		var id int64
		err := rows.Scan(&id, &b.Entries, &b.CellFrom, &b.CellTo, &b.SecondFrom, &b.SecondTo,
			&b.Facets, &b.Weights, &b.Cells, &b.Seconds, &b.Attempts)
		if err != nil {
			return nil, fmt.Errorf("blocks: %w", err)
		}
		blocks[id] = s.blocks.put(id, b)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("blocks: %w", err)
	}
	return blocks, nil
}

// pieces are the blocks of some headers, with the windows in which they count.
func (s *Store) pieces(ctx context.Context, tx pgx.Tx, headers []header, n need) ([]piece, error) {
	blocks, err := s.blocksOf(ctx, tx, headers, n)
	if err != nil {
		return nil, err
	}
	inside, edges := n.windows()
	pieces := make([]piece, 0, len(headers)+1)
	for _, h := range headers {
		windows := []tally.Window{n.window}
		switch {
		case h.kind != kindFull:
			windows = inside
		case h.covered:
			windows = edges
		}
		pieces = append(pieces, piece{blocks[h.id], windows})
	}
	return pieces, nil
}

// windows parts the window into what is whole hours, or days, of the summary, and
// those that edges part.
func (n *need) windows() (inside, edges []tally.Window) {
	if len(n.edges) == 0 {
		return []tally.Window{n.window}, nil
	}
	starts := n.edgeStarts()
	slices.Sort(starts)
	rest := n.window
	for _, start := range slices.Compact(starts) {
		before, edge := rest, rest
		before.SecondTo = min(rest.SecondTo, uint64(start))
		edge.SecondFrom, edge.SecondTo = max(rest.SecondFrom, uint64(start)), min(rest.SecondTo, uint64(start)+n.grain())
		if before.SecondFrom < before.SecondTo {
			inside = append(inside, before)
		}
		if edge.SecondFrom < edge.SecondTo {
			edges = append(edges, edge)
		}
		rest.SecondFrom = max(rest.SecondFrom, uint64(start)+n.grain())
	}
	if rest.SecondFrom < rest.SecondTo {
		inside = append(inside, rest)
	}
	return inside, edges
}

// grain is how many seconds the summary tells apart; 0: it does not tell seconds.
func (n *need) grain() uint64 { return grains[n.summary] }

// edgeStarts are where the hours, or days, begin that edges part.
func (n *need) edgeStarts() []int64 {
	out := make([]int64, len(n.edges))
	for i, s := range n.edges {
		out[i] = int64(s - s%n.grain())
	}
	return out
}

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

// blockCache keeps blocks that were read. A block never changes under its id, so that
// there is nothing to be wrong about.
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
	id     int64
	kind   int
	summed bool
}

// headersSQL selects the blocks that may count in a window: summaries where they
// suffice, and beside them what is summed only around the seconds that part an hour.
const headersSQL = `select b.id, b.kind, b.summed from letter_blocks b
	where case when b.kind = 0 and not (b.summed and @summary::smallint > 0)
			then b.second_to >= @second_from and b.second_from < @second_to and b.cell_to >= @cell_from and b.cell_from < @cell_to
		when b.kind = 0 then exists (select from unnest(@edges::bigint[]) e where b.second_to >= e and b.second_from < e + 3600)
		else b.kind = @summary and b.second_to >= @second_from and b.second_from < @second_to end`

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
	inside, edges := n.hourWindows()
	pieces := make([]piece, 0, len(headers)+1)
	for _, h := range headers {
		windows := []tally.Window{n.window}
		switch {
		case h.kind == kindHours:
			windows = inside
		case h.kind == kindFull && h.summed && n.summary == kindHours:
			windows = edges
		}
		pieces = append(pieces, piece{blocks[h.id], windows})
	}
	return pieces, nil
}

// hourWindows parts the window into whole hours, and the hours that edges part.
func (n *need) hourWindows() (inside, edges []tally.Window) {
	hours := hoursOf(n.edges)
	slices.Sort(hours)
	rest := n.window
	for _, h := range slices.Compact(hours) {
		before, edge := rest, rest
		before.SecondTo = min(rest.SecondTo, uint64(h))
		edge.SecondFrom, edge.SecondTo = max(rest.SecondFrom, uint64(h)), min(rest.SecondTo, uint64(h)+hour)
		if before.SecondFrom < before.SecondTo {
			inside = append(inside, before)
		}
		if edge.SecondFrom < edge.SecondTo {
			edges = append(edges, edge)
		}
		rest.SecondFrom = max(rest.SecondFrom, uint64(h)+hour)
	}
	if rest.SecondFrom < rest.SecondTo {
		inside = append(inside, rest)
	}
	return inside, edges
}

// hoursOf are the hours of some seconds.
func hoursOf(seconds []uint64) []int64 {
	out := make([]int64, len(seconds))
	for i, s := range seconds {
		out[i] = int64(s - s%hour)
	}
	return out
}

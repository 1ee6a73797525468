package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/tally"
)

// lettersSQL is all letters as changes from nothing; see pendingSQL.
var lettersSQL = `select null::bigint, null::integer, 0::bigint, null::bigint, null::integer,
		d.facet, k.id, ` + fmt.Sprintf(entryCell, "d.cell") + `, ` + fmt.Sprintf(entrySecond, "d.failed_at") + `, d.attempts
	from dead_letters d join facets k on k.facet = d.facet`

// RebuildCounts makes the counts anew from the letters, of one snapshot. Letters may
// be written and counts read meanwhile. It returns how many letters there are.
func (s *Store) RebuildCounts(ctx context.Context) (int64, error) {
	var letters int64
	err := s.inFold(ctx, true, func(tx pgx.Tx) error {
		// Facets that have no letter any more go, and the others are numbered anew.
		if _, err := tx.Exec(ctx, "delete from letter_blocks; delete from facets; alter sequence facets_id_seq restart"); err != nil {
			return err
		}
		if _, err := emptyLog(ctx, tx); err != nil {
			return err
		}
		if err := nameFacets(ctx, tx, "dead_letters"); err != nil {
			return err
		}
		if err := writeRuns(ctx, tx, lettersSQL); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "select count(*) from dead_letters").Scan(&letters); err != nil {
			return err
		}
		return mergeRuns(ctx, tx)
	})
	if err != nil {
		return 0, fmt.Errorf("rebuild the counts: %w", err)
	}
	if _, err := s.pool.Exec(ctx, "vacuum letter_deltas, letter_blocks, facets"); err != nil {
		return 0, fmt.Errorf("rebuild the counts: %w", err)
	}
	return letters, nil
}

// checksum is what letters of a facet add up to. Counts that lie about a letter's
// place, time or attempts make another one.
type checksum struct {
	Letters, Cells, Seconds, Attempts, Mixed int64
}

func (c *checksum) add(e entry) {
	n := int64(e.Weight)
	c.Letters += n
	c.Cells += n * int64(e.Cell)
	c.Seconds += n * int64(e.Second)
	c.Attempts += n * int64(e.Attempts)
	c.Mixed += n * int64(e.Cell^e.Second)
}

// Verified is the outcome of VerifyCounts.
type Verified struct {
	Letters int64
	Wrong   int // kinds of letters that are counted wrongly
}

// VerifyCounts holds the counts, summaries included, against the letters, in one
// snapshot.
func (s *Store) VerifyCounts(ctx context.Context) (*Verified, error) {
	found := &Verified{}
	err := pgx.BeginTxFunc(ctx, s.pool, snapshotTx, func(tx pgx.Tx) error {
		letters, err := sumLetters(ctx, tx)
		if err != nil {
			return err
		}
		for _, sum := range letters {
			found.Letters += sum.Letters
		}
		counts, wrong, err := sumCounts(ctx, tx)
		if err != nil {
			return err
		}
		found.Wrong = wrong + differing(letters, counts)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("verify the counts: %w", err)
	}
	return found, nil
}

// differing is how many keys have other sums.
func differing[K comparable](a, b map[K]checksum) int {
	n := 0
	for key, sum := range a {
		if b[key] != sum {
			n++
		}
	}
	for key, sum := range b {
		if _, ok := a[key]; !ok && sum != (checksum{}) {
			n++
		}
	}
	return n
}

func sumLetters(ctx context.Context, tx pgx.Tx) (map[int64]checksum, error) {
	rows, _ := tx.Query(ctx, `select facet, count(*), sum(cell)::bigint, sum(second)::bigint, sum(attempts)::bigint, sum(cell # second)::bigint
		from (select d.facet, `+fmt.Sprintf(entryCell, "d.cell")+` as cell, `+fmt.Sprintf(entrySecond, "d.failed_at")+` as second, d.attempts
			from dead_letters d) d group by facet`)
	sums := map[int64]checksum{}
	var facet int64
	var c checksum
	_, err := pgx.ForEachRow(rows, []any{&facet, &c.Letters, &c.Cells, &c.Seconds, &c.Attempts, &c.Mixed}, func() error {
		sums[facet] = c
		return nil
	})
	return sums, err
}

// sumCounts sums runs and log by facet, and tells how many sums of summaries are not
// those of what they stand for.
func sumCounts(ctx context.Context, tx pgx.Tx) (sums map[int64]checksum, wrong int, err error) {
	facets, err := facetHashes(ctx, tx)
	if err != nil {
		return nil, 0, err
	}
	sums = map[int64]checksum{}
	add := func(sums map[int64]checksum, facet int64, e entry) {
		sum := sums[facet]
		sum.add(e)
		sums[facet] = sum
	}
	summed, err := summedRuns(ctx, tx)
	if err != nil {
		return nil, 0, err
	}
	sumsTo := [lastKind + 1]func(entry) entry{kindWorld: worldOf, kindHours: hourOf, kindDays: dayOf}
	summaries := [lastKind + 1]map[int64]checksum{kindWorld: {}, kindHours: {}, kindDays: {}}
	err = eachBlock(ctx, tx, func(run int64, kind int, b *tally.Block) {
		for i := range b.Entries {
			e := b.At(i)
			facet := facets[e.Facet]
			if kind == kindFull {
				add(sums, facet, e)
				e.Weight = -e.Weight
				for _, summary := range summed[run] {
					add(summaries[summary], facet, sumsTo[summary](e))
				}
				continue
			}
			add(summaries[kind], facet, e)
		}
	})
	if err != nil {
		return nil, 0, err
	}
	for _, summary := range summaries {
		wrong += differing(summary, nil)
	}
	rows, _ := tx.Query(ctx, pendingSQL)
	defer rows.Close()
	for rows.Next() {
		c, err := scanChange(rows)
		if err != nil {
			return nil, 0, err
		}
		if c.was.Facet != nil {
			add(sums, *c.was.Facet, c.was.entry(0, -1))
		}
		if c.is.Facet != nil {
			add(sums, *c.is.Facet, c.is.entry(0, 1))
		}
	}
	return sums, wrong, rows.Err()
}

func facetHashes(ctx context.Context, tx pgx.Tx) (map[uint32]int64, error) {
	rows, _ := tx.Query(ctx, "select id, facet from facets")
	hashes := map[uint32]int64{}
	var id uint32
	var hash int64
	_, err := pgx.ForEachRow(rows, []any{&id, &hash}, func() error { hashes[id] = hash; return nil })
	return hashes, err
}

// summedRuns are the kinds of summaries that runs have.
func summedRuns(ctx context.Context, tx pgx.Tx) (map[int64][]int, error) {
	rows, _ := tx.Query(ctx, "select distinct run, kind from letter_blocks where kind <> $1", kindFull)
	kinds := map[int64][]int{}
	var run int64
	var kind int
	_, err := pgx.ForEachRow(rows, []any{&run, &kind}, func() error { kinds[run] = append(kinds[run], kind); return nil })
	return kinds, err
}

// eachBlock reads all blocks, one at a time.
func eachBlock(ctx context.Context, tx pgx.Tx, fn func(run int64, kind int, b *tally.Block)) error {
	rows, _ := tx.Query(ctx, "select run, kind, entries, cells, facets, seconds, attempts, weights from letter_blocks")
	defer rows.Close()
	for rows.Next() {
		var run int64
		var kind int
		b := &tally.Block{}
		if err := rows.Scan(&run, &kind, &b.Entries, &b.Cells, &b.Facets, &b.Seconds, &b.Attempts, &b.Weights); err != nil {
			return err
		}
		fn(run, kind, b)
	}
	return rows.Err()
}

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/tally"
)

// Kinds of blocks: the entries of a run, and what they sum to.
const (
	kindFull  = 0
	kindWorld = 1 // by cell of worldZoom and facet
	kindHours = 2 // by hour and facet
	kindDays  = 3 // by day, facet and attempts
	lastKind  = kindDays
)

// grains are the seconds that summaries by time tell apart.
var grains = [lastKind + 1]uint64{kindHours: hour, kindDays: day}

// worldZoom is the zoom of the cells that make up the world tile.
const worldZoom = subcellsPerTile

const (
	hour = 3600
	day  = 24 * hour
)

// summedFrom is how many entries a run has for which summaries are kept: those of a
// small run would be as large as itself.
const summedFrom = 4 * tally.BlockEntries

// foldChunk is how many changes are held in memory at once, and make a run.
const foldChunk = 200_000

// mergeFactor: a run is merged with the one before it unless that is so many times
// as large. What runs hold beyond one of each key stays below a tenth, so that churn
// is hardly read; each change is written anew some twenty times, of 20 bytes.
const mergeFactor = 12

// vacuumAfter is how many folded changes leave so much behind that reading the log
// would notice.
const vacuumAfter = 20_000

// unlocatedCell is the cell of letters without a place; their facet says so too.
const entryCell = "coalesce(%[1]s >> 28, 0)"

// entrySecond is the second of a failure, as far as a block can tell it.
const entrySecond = "least(greatest(floor(date_part('epoch', %[1]s)), 0), 4294967295)::bigint"

// pendingSQL is the log of changes with the ids of its facets, as far as they were
// folded before.
var pendingSQL = `select x.was_facet, w.id as was_id, ` + fmt.Sprintf(entryCell, "x.was_cell") + ` as was_cell,
		` + fmt.Sprintf(entrySecond, "x.was_at") + ` as was_second, x.was_attempts,
		x.facet, k.id, ` + fmt.Sprintf(entryCell, "x.cell") + ` as cell, ` + fmt.Sprintf(entrySecond, "x.failed_at") + ` as second, x.attempts
	from letter_deltas x left join facets w on w.facet = x.was_facet left join facets k on k.facet = x.facet`

// side is a letter before or after a change.
type side struct {
	Facet    *int64  // nil: there was no letter
	ID       *uint32 // nil: the facet is not known
	Cell     uint32
	Second   *uint32
	Attempts *uint32
}

func (s *side) entry(id, weight int32) entry {
	return entry{Cell: s.Cell, Facet: uint32(id), Second: *s.Second, Attempts: *s.Attempts, Weight: weight}
}

// change is a row of pendingSQL.
type change struct{ was, is side }

func scanChange(row pgx.CollectableRow) (change, error) {
	var c change
	err := row.Scan(&c.was.Facet, &c.was.ID, &c.was.Cell, &c.was.Second, &c.was.Attempts,
		&c.is.Facet, &c.is.ID, &c.is.Cell, &c.is.Second, &c.is.Attempts)
	return c, err
}

// errFolding: another process is at it.
var errFolding = errors.New("the counts are being folded by another process")

var foldTx = pgx.TxOptions{IsoLevel: pgx.RepeatableRead}

// inFold runs fn in a transaction that no other fold, merge or rebuild runs beside,
// and whose snapshot is taken once the others are out. It does not wait for them
// unless told to.
func (s *Store) inFold(ctx context.Context, wait bool, fn func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, foldTx, func(tx pgx.Tx) error {
		lock := "lock table letter_folds in exclusive mode"
		if !wait {
			lock += " nowait"
		}
		_, err := tx.Exec(ctx, lock)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "55P03" { // lock_not_available
			return errFolding
		}
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// Fold moves the log of changes into a run, and merges runs that have become alike.
// Another process that folds already is left to it. It returns how many changes
// there were.
func (s *Store) Fold(ctx context.Context) (int64, error) {
	var due bool
	err := s.pool.QueryRow(ctx, `select exists (select from letter_deltas)
		and folded_at < now() - interval '300 milliseconds' from letter_folds`).Scan(&due)
	if err != nil {
		return 0, fmt.Errorf("fold: %w", err)
	}
	if !due {
		return 0, nil
	}
	var folded int64
	err = s.inFold(ctx, false, func(tx pgx.Tx) (err error) {
		folded, err = foldPending(ctx, tx)
		return err
	})
	if err == nil {
		err = s.inFold(ctx, false, func(tx pgx.Tx) error { return mergeRuns(ctx, tx) })
	}
	if err != nil && !errors.Is(err, errFolding) {
		return folded, fmt.Errorf("fold: %w", err)
	}
	return folded, s.vacuumLog(ctx, folded)
}

// vacuumLog keeps the log short: it is read by every count.
func (s *Store) vacuumLog(ctx context.Context, folded int64) error {
	if s.folded.Add(folded) < vacuumAfter {
		return nil
	}
	s.folded.Store(0)
	if _, err := s.pool.Exec(ctx, "vacuum letter_deltas"); err != nil {
		return fmt.Errorf("fold: vacuum: %w", err)
	}
	return nil
}

func foldPending(ctx context.Context, tx pgx.Tx) (int64, error) {
	if err := nameFacets(ctx, tx, "letter_deltas"); err != nil {
		return 0, err
	}
	if err := writeRuns(ctx, tx, pendingSQL); err != nil {
		return 0, err
	}
	return emptyLog(ctx, tx)
}

// emptyLog drops the changes that the transaction sees.
func emptyLog(ctx context.Context, tx pgx.Tx) (int64, error) {
	tag, err := tx.Exec(ctx, "delete from letter_deltas")
	if err != nil {
		return 0, fmt.Errorf("empty the log: %w", err)
	}
	_, err = tx.Exec(ctx, "update letter_folds set fold = fold + 1, folded_at = now()")
	return tag.RowsAffected(), err
}

// writeRuns makes runs of the changes that a query reads.
func writeRuns(ctx context.Context, tx pgx.Tx, query string) error {
	if _, err := tx.Exec(ctx, "declare changes no scroll cursor for "+query); err != nil {
		return err
	}
	var entries []entry
	for {
		rows, _ := tx.Query(ctx, fmt.Sprintf("fetch %d from changes", foldChunk))
		changes, err := pgx.CollectRows(rows, scanChange)
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		if len(changes) == 0 {
			return nil
		}
		entries = appendKnown(entries[:0], changes)
		if err := writeRun(ctx, tx, tally.Sort(entries)); err != nil {
			return err
		}
	}
}

// nameFacets gives new facets of a table an id, with names from any of their letters. One that
// has no letter any more came and went within the log: what it counts is nothing,
// and it is left out.
func nameFacets(ctx context.Context, tx pgx.Tx, table string) error {
	_, err := tx.Exec(ctx, `insert into facets (facet, class, stage, status, source, task, fingerprint, located_by, located)
		select x.facet, l.* from (
			select distinct x.facet from `+table+` x
			where x.facet is not null and not exists (select from facets k where k.facet = x.facet)) x
		cross join lateral (`+facetNamesSQL+` where d.facet = x.facet limit 1) l`)
	if err != nil {
		return fmt.Errorf("name facets: %w", err)
	}
	return nil
}

func appendKnown(entries []entry, changes []change) []entry {
	for i := range changes {
		if was := &changes[i].was; was.ID != nil {
			entries = append(entries, was.entry(int32(*was.ID), -1))
		}
		if is := &changes[i].is; is.ID != nil {
			entries = append(entries, is.entry(int32(*is.ID), 1))
		}
	}
	return entries
}

func writeRun(ctx context.Context, tx pgx.Tx, entries []entry) error {
	out, err := newRunWriter(ctx, tx, len(entries))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := out.full.Add(e); err != nil {
			return err
		}
	}
	return out.close()
}

// mergeRuns merges the last runs, so many that each that stays is mergeFactor times
// as large as what follows it.
func mergeRuns(ctx context.Context, tx pgx.Tx) error {
	type run struct {
		Run     int64
		Entries int
		Summed  bool
	}
	rows, _ := tx.Query(ctx, `select run, sum(entries)::bigint as entries, run in (select run from letter_blocks where kind = $2) as summed
		from letter_blocks where kind = $1 group by run order by run`, kindFull, lastKind)
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[run])
	if err != nil {
		return fmt.Errorf("runs: %w", err)
	}
	from, total, behind := len(runs), 0, 0
	for n := len(runs) - 1; n >= 0; n-- {
		r := runs[n]
		old := r.Entries >= summedFrom && !r.Summed // written before there was the last kind
		alike := behind > 0 && r.Entries < mergeFactor*behind
		behind += r.Entries
		if old || alike {
			from, total = n, behind
		}
	}
	if from == len(runs) {
		return nil
	}
	out, err := newRunWriter(ctx, tx, total)
	if err != nil {
		return err
	}
	merged := make([]int64, 0, len(runs)-from)
	sources := make([]tally.Source, 0, len(runs)-from)
	for _, r := range runs[from:] {
		merged = append(merged, r.Run)
		sources = append(sources, readRun(ctx, tx, r.Run))
	}
	if err := tally.Merge(sources, out.full); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if err := out.close(); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "delete from letter_blocks where run = any($1)", merged); err != nil {
		return fmt.Errorf("drop merged runs: %w", err)
	}
	return nil
}

// readAhead is how many blocks of a run a merge reads at once.
const readAhead = 4

func readRun(ctx context.Context, tx pgx.Tx, run int64) tally.Source {
	var ahead []*tally.Block
	next := 0
	return func() (*tally.Block, error) {
		if len(ahead) == 0 {
			rows, _ := tx.Query(ctx, `select entries, cells, facets, seconds, attempts, weights from letter_blocks
				where run = $1 and kind = $2 and seq >= $3 order by seq limit $4`, run, kindFull, next, readAhead)
			var err error
			ahead, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*tally.Block, error) {
				b := &tally.Block{}
				return b, row.Scan(&b.Entries, &b.Cells, &b.Facets, &b.Seconds, &b.Attempts, &b.Weights)
			})
			if err != nil {
				return nil, fmt.Errorf("read run %d: %w", run, err)
			}
			if len(ahead) == 0 {
				return nil, nil
			}
			next += len(ahead)
		}
		block := ahead[0]
		ahead = ahead[1:]
		return block, nil
	}
}

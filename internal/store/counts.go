package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"geodlq/internal/dlq"
	"geodlq/internal/tally"
)

// facetCache holds the names of facets, which never change once they are folded, as long as
// the database does not go back in time.
type facetCache struct {
	mu      sync.Mutex
	history int      // how often they were others
	all     []*facet // by id; nil where there is none
}

// facet is the names of letters that are counted as one, with the hash that they
// carry.
type facet struct {
	names
	id   uint32
	hash int64
	mark [16]byte // no other facet has it, in any history; it stands for those before it, too
}

// newFacetsSQL reads facets that were folded since, behind the last one that is known, or
// where the snapshot has fewer, its own last one.
const newFacetsSQL = `select id, facet, class, stage, status, source, task, fingerprint, located_by, located, mark
	from facets where id >= least($1, (select max(id) from facets)) order by id`

func scanFacet(row pgx.CollectableRow) (*facet, error) {
	f := &facet{}
	return f, row.Scan(&f.id, &f.hash, &f.Class, &f.Stage, &f.Status, &f.Source, &f.Task, &f.Fingerprint, &f.LocatedBy, &f.Located, &f.mark)
}

// known is the last facet that is held, and the history that it is of.
func (c *facetCache) known() (last, history int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(len(c.all)-1, 0), c.history
}

// extend takes facets that newFacetsSQL read behind what was known, and returns all. It is
// false where they are of another history.
func (c *facetCache) extend(history int, read []*facet) ([]*facet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if history != c.history || len(c.all) > 0 && len(read) == 0 {
		return nil, false
	}
	for _, f := range read {
		if int(f.id) < len(c.all) {
			if held := c.all[f.id]; held == nil || held.mark != f.mark {
				return nil, false
			}
			continue // the one that was known, or another reader was faster
		}
		c.hold(f)
	}
	return c.all, true
}

// replace takes the facets of another history, all of them.
func (c *facetCache) replace(read []*facet) []*facet {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history++
	c.all = nil // others read it
	for _, f := range read {
		c.hold(f)
	}
	return c.all
}

func (c *facetCache) hold(f *facet) {
	c.all = append(c.all, make([]*facet, int(f.id)+1-len(c.all))...)
	c.all[f.id] = f
}

// facetsOf are the facets of a transaction's snapshot, of which those behind what was known
// were read.
func (s *Store) facetsOf(ctx context.Context, tx pgx.Tx, history int, read []*facet) ([]*facet, error) {
	if all, ok := s.facets.extend(history, read); ok {
		return all, nil
	}
	rows, _ := tx.Query(ctx, newFacetsSQL, 0)
	read, err := pgx.CollectRows(rows, scanFacet)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	return s.facets.replace(read), nil
}

// turn waits where there are so many facets that to count by each takes memory and time:
// they are counted by as many at once as there are cores. ErrOverloaded after
// Rules.ReadTimeout.
func (s *Store) turn(ctx context.Context) (done func(), err error) {
	if last, _ := s.facets.known(); last <= s.maxFacets {
		return func() {}, nil
	}
	waited := make(<-chan time.Time) // never
	if s.rules.ReadTimeout > 0 {
		waited = time.After(s.rules.ReadTimeout)
	}
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-waited:
		return nil, dlq.ErrOverloaded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// need is what is to be read of the counts.
type need struct {
	cells, seconds, attempts bool // beside facets

	window  tally.Window
	summary int        // the kind that suffices, or kindFull
	edges   []uint64   // seconds that part an hour, or a day, of the summary
	rest    dlq.Filter // letters of parts of a second at its ends are read as rows
}

// counts is what runs and log say in one snapshot.
type counts struct {
	facets  []*facet // by id, those of the log that are not folded yet behind
	pieces  []piece
	rest    *tally.Block // letters in the parts of a second at the window's ends, or nil
	version string       // differs whenever a letter was written in between
}

// entry is what counts are made of.
type entry = tally.Entry

// piece is a block with the windows in which it counts.
type piece struct {
	block   *tally.Block
	windows []tally.Window
}

// each calls fn for the entries of the selected facets.
func (c *counts) each(selected []bool, fn func(entry)) {
	for i := range c.pieces {
		for _, w := range c.pieces[i].windows {
			c.pieces[i].block.Each(w, selected, fn)
		}
	}
}

// eachRest calls fn for the letters in parts of a second.
func (c *counts) eachRest(selected []bool, fn func(entry)) {
	if c.rest != nil {
		c.rest.Each(tally.Everything, selected, fn)
	}
}

// perFacet is how many letters each facet has in a window, as far as it was read: of
// whole hours where these are what was read.
func (c *counts) perFacet(w tally.Window) []int64 {
	sums := make([]int64, len(c.facets))
	for i := range c.pieces {
		c.pieces[i].block.Sum(w, sums)
	}
	return sums
}

// total is what the selected facets have; nil selects all.
func total(perFacet []int64, selected []bool) (n int64) {
	for id, letters := range perFacet {
		if selected == nil || selected[id] {
			n += letters
		}
	}
	return n
}

// hashes are what letters of the selected facets carry.
func (c *counts) hashes(selected []bool) []int64 {
	var hashes []int64
	for id, is := range selected {
		if is {
			hashes = append(hashes, c.facets[id].hash)
		}
	}
	// One that is folded elsewhere, but not in this snapshot, is there twice.
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// selected marks the facets of a filter.
func (c *counts) selected(f *dlq.Filter) []bool {
	m := match(f)
	out := make([]bool, len(c.facets))
	for i, facet := range c.facets {
		out[i] = facet != nil && m.selects(&facet.names)
	}
	return out
}

// wholeSeconds is the part of a filter's time that is whole seconds.
func wholeSeconds(f dlq.Filter) tally.Window {
	w := tally.Everything
	if f.Since != nil {
		w.SecondFrom = clampSecond(f.Since.Add(time.Second - 1).Unix())
	}
	if f.Until != nil {
		w.SecondTo = clampSecond(f.Until.Unix())
	}
	w.SecondTo = max(w.SecondTo, w.SecondFrom)
	return w
}

// wholeHours are those within a filter's time, and those that it touches.
func wholeHours(f dlq.Filter) (inside, around tally.Window) {
	inside, around = tally.Everything, tally.Everything
	if f.Since != nil {
		around.SecondFrom = clampSecond(f.Since.Truncate(time.Hour).Unix())
		inside.SecondFrom = clampSecond(f.Since.Add(time.Hour - 1).Truncate(time.Hour).Unix())
	}
	if f.Until != nil {
		around.SecondTo = clampSecond(f.Until.Add(time.Hour - 1).Truncate(time.Hour).Unix())
		inside.SecondTo = clampSecond(f.Until.Truncate(time.Hour).Unix())
	}
	inside.SecondTo = max(inside.SecondTo, inside.SecondFrom)
	return inside, around
}

func clampSecond(unix int64) uint64 { return uint64(max(0, min(unix, 1<<32))) }

// parting are the ends of a window that part an hour, or a day.
func parting(w tally.Window, grain uint64) []uint64 {
	var parts []uint64
	for _, s := range []uint64{w.SecondFrom, w.SecondTo} {
		if s%grain != 0 {
			parts = append(parts, s)
		}
	}
	return parts
}

// read reads counts in the snapshot of a transaction.
func (s *Store) read(ctx context.Context, tx pgx.Tx, n need) (*counts, error) {
	all, err := s.readEach(ctx, tx, n)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readEach reads what is needed of the counts for several ends at once. The rest of
// each is that of the first.
func (s *Store) readEach(ctx context.Context, tx pgx.Tx, needs ...need) ([]*counts, error) {
	var changes []change
	var fold string
	var facets []*facet
	batch := &pgx.Batch{}
	batch.Queue("select " + versionSQL + " from letter_folds").QueryRow(func(row pgx.Row) error { return row.Scan(&fold) })
	last, history := s.facets.known()
	batch.Queue(newFacetsSQL, last).Query(func(rows pgx.Rows) (err error) {
		facets, err = pgx.CollectRows(rows, scanFacet)
		return err
	})
	batch.Queue(pendingSQL).Query(func(rows pgx.Rows) (err error) {
		changes, err = pgx.CollectRows(rows, scanChange)
		return err
	})
	headers := make([][]header, len(needs))
	for i := range needs {
		batch.Queue(headersSQL, needs[i].headersArgs()).Query(func(rows pgx.Rows) (err error) {
			headers[i], err = pgx.CollectRows(rows, scanHeader)
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	rest, err := restSides(ctx, tx, needs[0].rest)
	if err != nil {
		return nil, err
	}
	if facets, err = s.facetsOf(ctx, tx, history, facets); err != nil {
		return nil, err
	}
	common := counts{version: fmt.Sprintf("%s.%d", fold, len(changes)), facets: facets}
	log, err := common.addLetters(ctx, tx, changes, rest)
	if err != nil {
		return nil, err
	}
	out := make([]*counts, len(needs))
	for i, n := range needs {
		c := common
		if c.pieces, err = s.pieces(ctx, tx, headers[i], n); err != nil {
			return nil, err
		}
		if log != nil {
			c.pieces = append(c.pieces, piece{log, []tally.Window{n.window}})
		}
		out[i] = &c
	}
	return out, nil
}

// addLetters adds the letters in parts of a second, and returns what the log says, or
// nil. Facets that were not folded yet get numbers of their own.
func (c *counts) addLetters(ctx context.Context, tx pgx.Tx, changes []change, rest []side) (log *tally.Block, err error) {
	var unknown []int64
	seen := map[int64]bool{}
	sides := make([]*side, 0, 2*len(changes)+len(rest))
	for i := range changes {
		sides = append(sides, &changes[i].was, &changes[i].is)
	}
	for i := range rest {
		sides = append(sides, &rest[i])
	}
	for _, s := range sides {
		if s.Facet != nil && s.ID == nil && !seen[*s.Facet] {
			seen[*s.Facet] = true
			unknown = append(unknown, *s.Facet)
		}
	}
	if len(unknown) > 0 {
		if err := c.nameUnknown(ctx, tx, unknown, sides); err != nil {
			return nil, err
		}
	}
	if entries := appendKnown(nil, changes); len(entries) > 0 {
		log = tally.Pack(entries)
	}
	entries := make([]tally.Entry, 0, len(rest))
	for i := range rest {
		if rest[i].ID != nil {
			entries = append(entries, rest[i].entry(int32(*rest[i].ID), 1))
		}
	}
	if len(entries) > 0 {
		c.rest = tally.Pack(entries)
	}
	return log, nil
}

// nameUnknown numbers facets of the log. One that has no letter any more counts
// nothing, and stays without a number.
func (c *counts) nameUnknown(ctx context.Context, tx pgx.Tx, unknown []int64, sides []*side) error {
	rows, _ := tx.Query(ctx, `select 0, x.facet, l.*, gen_random_uuid() from unnest($1::bigint[]) x (facet)
		cross join lateral (`+facetNamesSQL+` where d.facet = x.facet limit 1) l`, unknown)
	facets, err := pgx.CollectRows(rows, scanFacet)
	if err != nil {
		return fmt.Errorf("names of new facets: %w", err)
	}
	c.facets = slices.Clone(c.facets)
	ids := make(map[int64]uint32, len(facets))
	for _, f := range facets {
		ids[f.hash] = uint32(len(c.facets))
		c.facets = append(c.facets, f)
	}
	for _, s := range sides {
		if s.Facet == nil || s.ID != nil {
			continue
		}
		if id, ok := ids[*s.Facet]; ok {
			s.ID = &id
		}
	}
	return nil
}

// parts are what a filter's time begins and ends with that is no whole grain of time.
func parts(f dlq.Filter, grain time.Duration) [][2]time.Time {
	var parts [][2]time.Time
	if f.Since != nil && !f.Since.Truncate(grain).Equal(*f.Since) {
		end := f.Since.Truncate(grain).Add(grain)
		if f.Until != nil && f.Until.Before(end) {
			end = *f.Until
		}
		parts = append(parts, [2]time.Time{*f.Since, end})
	}
	if f.Until != nil {
		if start := f.Until.Truncate(grain); start.Before(*f.Until) && (f.Since == nil || !start.Before(*f.Since)) {
			parts = append(parts, [2]time.Time{start, *f.Until})
		}
	}
	return parts
}

// restSides reads the letters that failed in the parts of a second at the ends of a
// filter's time, whatever their names.
func restSides(ctx context.Context, tx pgx.Tx, f dlq.Filter) ([]side, error) {
	var sides []side
	for _, part := range parts(f, time.Second) {
		rows, _ := tx.Query(ctx, `select d.facet, k.id, `+fmt.Sprintf(entryCell, "d.cell")+`, `+fmt.Sprintf(entrySecond, "d.failed_at")+`, d.attempts
			from dead_letters d left join facets k on k.facet = d.facet
			where d.failed_at >= $1 and d.failed_at < $2`, part[0], part[1])
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (side, error) {
			var s side
			return s, row.Scan(&s.Facet, &s.ID, &s.Cell, &s.Second, &s.Attempts)
		})
		if err != nil {
			return nil, fmt.Errorf("letters of a part of a second: %w", err)
		}
		sides = append(sides, found...)
	}
	return sides, nil
}

// versionSQL begins a version. It tells what counts folds: a server since its start, which
// each restored database and each replica has of its own; a database on it; and its table.
// Commits may become visible on a replica in another order than on the primary, and as many
// of them be others.
const versionSQL = `to_hex((extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint) || '.' ||
	(select oid from pg_database where datname = current_database()) || '.' || pg_relation_filenode('letter_folds') || '.' || fold`

// Version is a mark of all letters: it differs from any earlier one if a letter was
// written in between. It costs next to nothing, and is the same for every process that
// reads the same server; a primary and its replica never have the same.
func (s *Store) Version(ctx context.Context) (v string, err error) {
	err = s.either(ctx, func(db *pgxpool.Pool, reach context.Context) error {
		ctx, cancel := within(ctx, reach)
		defer cancel()
		v, err = version(ctx, db)
		return err
	})
	return v, err
}

func version(ctx context.Context, on queryer) (string, error) {
	var version string
	err := on.QueryRow(ctx, "select "+versionSQL+" || '.' || (select count(*) from letter_deltas) from letter_folds").Scan(&version)
	if err != nil {
		return "", fmt.Errorf("version: %w", err)
	}
	return version, nil
}

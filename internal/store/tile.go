package store

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
	"geodlq/internal/tally"
)

// maxTileLetters is how many letters a tile shows one by one, some 40 bytes each; of
// more it shows cells.
const maxTileLetters = 3000

// Zooms of the tiles: cells with counts up to MaxCellZoom, single letters beyond, as
// far as there are not too many.
const (
	MaxCellZoom = 9
	MaxTileZoom = 22
)

// cellBits is the zoom of dead_letters.cell; a tile shows 2^cellsPerTile cells
// along each side, and places what a cell counts by 2^subcellsPerTile.
const (
	cellBits        = 30
	cellsPerTile    = 3
	subcellsPerTile = 6
)

// inTile selects by the quadkey range of a tile, half-open, so that each letter
// is in exactly one tile of a zoom.
const inTile = "d.cell >= @cell_from and d.cell < @cell_to"

// Longitude and latitude of an anchor as cell takes them: 180 is -180, and what
// lies beyond the square world is moved to its edge.
const (
	tileLon = "(case when ST_X(%[1]s) = 180 then -180 else ST_X(%[1]s) end)"
	tileLat = "greatest(-85.0511287798066, least(85.0511287798066, ST_Y(%[1]s)))"
)

// tilePoint is where a longitude and a latitude lie in a tile, in units of an
// extent of 4096, and never on its far edges, which belong to the next one: the
// south pole has none.
func tilePoint(lon, lat string) string {
	return fmt.Sprintf(`ST_MakePoint(least(((%s + 180) / 360 * @tiles - @tile_x) * 4096, 4095),
		least(((0.5 - ln(tan(pi() / 4 + radians(%s) / 2)) / (2 * pi())) * @tiles - @tile_y) * 4096, 4095))`, lon, lat)
}

func anchorLon(anchor string) string { return fmt.Sprintf(tileLon, anchor) }
func anchorLat(anchor string) string { return fmt.Sprintf(tileLat, anchor) }

// quadkey is a tile's address as a number, x and y interleaved, x lowest.
func quadkey(t dlq.Tile) int64 {
	var key int64
	for bit := range t.Z {
		key |= int64(t.X>>bit&1)<<(2*bit) | int64(t.Y>>bit&1)<<(2*bit+1)
	}
	return key
}

// tileArgs are the numbers of a tile that its SQL needs.
func tileArgs(t dlq.Tile) pgx.NamedArgs {
	prefix := quadkey(t)
	shift := 2 * (cellBits - t.Z)
	return pgx.NamedArgs{
		"z": t.Z, "x": t.X, "y": t.Y,
		"cell_from": prefix << shift, "cell_to": (prefix + 1) << shift,
		"cell_shift": 2 * max(cellBits-t.Z-cellsPerTile, 0), "subcell_shift": 2 * max(cellBits-t.Z-subcellsPerTile, 0),
		"tiles": float64(int64(1) << t.Z), "tile_x": float64(t.X), "tile_y": float64(t.Y),
	}
}

// Tile is a Mapbox vector tile (MVT 2.1) of the letters of a filter, empty where
// there are none, and the Version of the letters that it shows. Over all tiles of a
// zoom the counts of layer cells (to MaxCellZoom, and of crowded tiles) or letters sum
// to the filter's located letters. ErrTooSlow where rows have to be read, and are too many.
func (s *Store) Tile(ctx context.Context, f dlq.Filter, t dlq.Tile) (tile []byte, version string, err error) {
	read := s.countTile
	if t.Z > MaxCellZoom {
		read = s.letterTile
	} else if !countable(f) {
		read = s.rowTile
	}
	err = s.reading(ctx, func(tx pgx.Tx) error {
		tile, version, err = read(ctx, tx, f, t)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("tile: %w", err)
	}
	return tile, version, nil
}

// countTile draws a tile of cells from counts.
func (s *Store) countTile(ctx context.Context, tx pgx.Tx, f dlq.Filter, t dlq.Tile) ([]byte, string, error) {
	shift := 2 * (tally.Zoom - t.Z)
	prefix := uint64(quadkey(t))
	n := need{cells: true, rest: f, window: wholeSeconds(f)}
	n.window.CellFrom, n.window.CellTo = prefix<<shift, (prefix+1)<<shift
	if n.seconds = f.Since != nil || f.Until != nil; !n.seconds && t.Z+subcellsPerTile <= worldZoom {
		n.summary = kindWorld
	}
	c, err := s.read(ctx, tx, n)
	if err != nil {
		return nil, "", err
	}
	located := true
	if f.Located != nil && !*f.Located {
		return nil, c.version, nil
	}
	f.Located = &located
	grid := &cellGrid{}
	slots := c.classSlots()
	subShift := shift - 2*subcellsPerTile
	count := func(e entry) {
		if key := uint64(e.Cell); key >= n.window.CellFrom && key < n.window.CellTo {
			grid.add(int((key-n.window.CellFrom)>>subShift), slots[e.Facet], int64(e.Weight))
		}
	}
	selected := c.selected(&f)
	c.each(selected, count)
	c.eachRest(selected, count)
	return grid.tile(), c.version, nil
}

// rowTile draws a tile of cells from letters.
func (s *Store) rowTile(ctx context.Context, tx pgx.Tx, f dlq.Filter, t dlq.Tile) ([]byte, string, error) {
	cond, args := where(f)
	maps.Copy(args, tileArgs(t))
	rows, _ := tx.Query(ctx, `select ((d.cell - @cell_from) >> @subcell_shift)::int, d.class, count(*)
		from dead_letters d where `+cond+` and `+inTile+` group by 1, 2`, args)
	grid := &cellGrid{}
	var subcell int
	var class dlq.Class
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&subcell, &class, &n}, func() error {
		grid.add(subcell, classSlot(class), n)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	version, err := version(ctx, tx)
	return grid.tile(), version, err
}

// letterTile draws a tile of single letters, or of cells where they are a crowd.
func (s *Store) letterTile(ctx context.Context, tx pgx.Tx, f dlq.Filter, t dlq.Tile) (tile []byte, _ string, err error) {
	cond, args := where(f)
	maps.Copy(args, tileArgs(t))
	var crowd bool
	err = tx.QueryRow(ctx, fmt.Sprintf("select count(*) > %[1]d from (select from dead_letters d where "+cond+" and "+inTile+" limit %[1]d + 1) l",
		maxTileLetters), args).Scan(&crowd)
	if err != nil {
		return nil, "", err
	}
	if crowd {
		return s.rowTile(ctx, tx, f, t)
	}
	if err := tx.QueryRow(ctx, strings.ReplaceAll(letterTile, "{where}", cond), args).Scan(&tile); err != nil {
		return nil, "", err
	}
	version, err := version(ctx, tx)
	return tile, version, err
}

// countsByName writes a count for each name, absent where it is zero.
func countsByName[T ~string](column string, names []T) string {
	counts := make([]string, len(names))
	for i, name := range names {
		counts[i] = fmt.Sprintf(`nullif(count(*) filter (where %s = '%s'), 0) as "%s"`, column, name, name)
	}
	return strings.Join(counts, ", ")
}

// mostFrequent is the name whose count of countsByName is the largest, the first
// of equals.
func mostFrequent[T ~string](names []T) string {
	cases := make([]string, len(names))
	for i, name := range names {
		cases[i] = fmt.Sprintf(`when "%s" then '%s'`, name, name)
	}
	return "case greatest(" + quoted(names) + ") " + strings.Join(cases, " ") + " end"
}

func quoted[T ~string](names []T) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", string(name))
	}
	return strings.Join(out, ", ")
}

// letterTile has a point for each letter, and apart from that the shapes that lie
// in the tile and the places of flaws. Shapes are found by the tile's envelope in
// EPSG:4326, so that the index on geom serves.
var letterTile = `select
	coalesce((select ST_AsMVT(t, 'letters', 4096, 'geom') from (
		select ` + tilePoint(anchorLon("d.anchor"), anchorLat("d.anchor")) + ` as geom, d.id, d.stage, d.class, d.status, d.located_by, 1::bigint as count
		from dead_letters d where {where} and ` + inTile + `) t), '') ||
	coalesce((select ST_AsMVT(t, 'shapes', 4096, 'geom') from (
		select geodlq_shape(d.geom, ST_TileEnvelope(@z, @x, @y)) as geom, d.id, d.class, d.status, d.located_by
		from dead_letters d, (select ST_Transform(ST_TileEnvelope(@z, @x, @y), 4326) as box offset 0) e
		where {where} and d.geom && e.box and ST_Dimension(d.geom) > 0) t where geom is not null), '') ||
	coalesce((select ST_AsMVT(t, 'flaws', 4096, 'geom') from (
		select ` + tilePoint(anchorLon("d.invalid_at"), anchorLat("d.invalid_at")) + ` as geom, d.id
		from (select geodlq_cell(d.invalid_at) as cell, d.invalid_at, d.id from dead_letters d,
				(select ST_Expand(ST_Transform(ST_TileEnvelope(@z, @x, @y), 4326), 0.001) as box offset 0) e
			where {where} and d.invalid_at is not null and d.geom && e.box) d
		where ` + inTile + `) t), '')`

// RedriveTile is a vector tile of the letters of an order: layer items, cells at
// every zoom with a count for each state; ErrNotFound.
func (s *Store) RedriveTile(ctx context.Context, id int64, t dlq.Tile) ([]byte, error) {
	args := tileArgs(t)
	args["id"] = id
	var tile []byte
	var found bool
	if err := s.pool.QueryRow(ctx, itemTile, args).Scan(&tile, &found); err != nil {
		return nil, fmt.Errorf("redrive tile: %w", err)
	}
	if !found {
		return nil, fmt.Errorf("redrive %d: %w", id, dlq.ErrNotFound)
	}
	return tile, nil
}

var itemTile = `select coalesce(ST_AsMVT(t, 'items', 4096, 'geom'), ''), exists (select from redrives where id = @id) from (
	select ` + tilePoint("c.lon", "c.lat") + ` as geom, c.count, ` + mostFrequent(dlq.ItemStates) + ` as state,
		` + quoted(dlq.ItemStates) + ` from (
		select avg(` + anchorLon("d.anchor") + `) as lon, avg(` + anchorLat("d.anchor") + `) as lat, count(*) as count,
			` + countsByName("r.state", dlq.ItemStates) + `
		from redrive_letters r join dead_letters d on d.id = r.letter_id
		where r.redrive_id = @id and ` + inTile + `
		group by d.cell >> @cell_shift) c) t`

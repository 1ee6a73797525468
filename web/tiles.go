package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/store"
)

const mediaTile = "application/vnd.mapbox-vector-tile"

// tileOf reads z, x and y of a path, y with its suffix.
func tileOf(c echo.Context) (dlq.Tile, error) {
	y, ok := strings.CutSuffix(c.Param("y"), ".mvt")
	if !ok {
		return dlq.Tile{}, dlq.ErrNotFound
	}
	var t dlq.Tile
	for _, part := range []struct {
		text string
		to   *int
	}{{c.Param("z"), &t.Z}, {c.Param("x"), &t.X}, {y, &t.Y}} {
		n, err := strconv.Atoi(part.text)
		if err != nil || strconv.Itoa(n) != part.text {
			return dlq.Tile{}, dlq.BadRequest("tile", "has an address of three whole numbers, z/x/y.mvt")
		}
		*part.to = n
	}
	if t.Z > store.MaxTileZoom || !t.Valid() {
		return dlq.Tile{}, dlq.BadRequest("tile", "does not exist: z is 0 to %d, x and y 0 to 2^z - 1", store.MaxTileZoom)
	}
	return t, nil
}

func (s *Server) getTile(c echo.Context) error {
	t, err := tileOf(c)
	if err != nil {
		return err
	}
	q, err := readQuery(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	version, err := s.store.Version(ctx)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%d/%d/%d?%s", t.Z, t.X, t.Y, q.filter.Values().Encode())
	if etag, ok := sentTag(c, func(tag string) bool { return strings.HasPrefix(tag, tagPrefix(key, version)) }); ok {
		return notModified(c, etag)
	}
	tile, ok := s.tiles.get(key, version)
	if !ok {
		if tile, version, err = s.store.Tile(ctx, q.filter, t); err != nil {
			return err
		}
		s.tiles.put(key, version, tile)
	}
	return answerTile(c, tile, tagPrefix(key, version))
}

// An entity tag of a tile begins with what was asked and the version of the letters:
// while that stands, the tile is known to be unchanged without being asked for. It
// ends with a hash of the tile's bytes: one that letters elsewhere left as it was is
// not sent again.
func tagPrefix(key, version string) string { return hashed([]byte(key))[:8] + "." + version + "-" }

func hashed(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// sentTag is the first entity tag of If-None-Match that fits.
func sentTag(c echo.Context, fits func(tag string) bool) (string, bool) {
	for candidate := range strings.SplitSeq(c.Request().Header.Get("If-None-Match"), ",") {
		tag := strings.Trim(strings.TrimPrefix(strings.TrimSpace(candidate), "W/"), `"`)
		if tag != "" && fits(tag) {
			return tag, true
		}
	}
	return "", false
}

func notModified(c echo.Context, tag string) error {
	setTag(c, tag)
	return c.NoContent(http.StatusNotModified)
}

func setTag(c echo.Context, tag string) {
	h := c.Response().Header()
	h.Set("Cache-Control", "no-cache") // ask each time, by the ETag
	h.Set("ETag", `"`+tag+`"`)
}

func (s *Server) getRedriveTile(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	t, err := tileOf(c)
	if err != nil {
		return err
	}
	tile, err := s.store.RedriveTile(c.Request().Context(), id, t)
	if err != nil {
		return err
	}
	return answerTile(c, tile, "")
}

// answerTile answers 204 for an empty tile, 304 for one that the client has.
func answerTile(c echo.Context, tile []byte, prefix string) error {
	content := hashed(tile)
	same := func(tag string) bool { return tag == "*" || tag[strings.LastIndexByte(tag, '-')+1:] == content }
	if _, ok := sentTag(c, same); ok {
		return notModified(c, prefix+content)
	}
	setTag(c, prefix+content)
	if len(tile) == 0 {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Blob(http.StatusOK, mediaTile, tile)
}

// tileJSON describes the tiles of a filter (TileJSON 3.0).
type tileJSON struct {
	TileJSON     string        `json:"tilejson"`
	Name         string        `json:"name"`
	Tiles        []string      `json:"tiles"`
	VectorLayers []vectorLayer `json:"vector_layers"`
	MinZoom      int           `json:"minzoom"`
	MaxZoom      int           `json:"maxzoom"`
	Bounds       [4]float64    `json:"bounds"`
}

type vectorLayer struct {
	ID          string            `json:"id"`
	Description string            `json:"description"`
	Fields      map[string]string `json:"fields"`
	MinZoom     int               `json:"minzoom"`
	MaxZoom     int               `json:"maxzoom"`
}

func (s *Server) getTileJSON(c echo.Context) error {
	q, err := readQuery(c)
	if err != nil {
		return err
	}
	r := c.Request()
	address := baseURL(r) + "/tiles/{z}/{x}/{y}.mvt"
	if encoded := q.filter.Values().Encode(); encoded != "" {
		address += "?" + encoded
	}
	cells := map[string]string{"count": "Number", "class": "String: the most frequent"}
	for _, class := range dlq.Classes {
		cells[string(class)] = "Number: letters of this class, absent where there are none"
	}
	bounds := [4]float64{-180, -85.0511287798066, 180, 85.0511287798066}
	extent, err := s.store.Extent(r.Context(), q.filter)
	if err != nil {
		return err
	}
	if extent != nil {
		bounds = [4]float64{extent.West, extent.South, extent.East, extent.North}
	}
	return answerJSON(c, http.StatusOK, mediaJSON, tileJSON{
		TileJSON: "3.0.0", Name: "geodlq", Tiles: []string{address}, MinZoom: 0, MaxZoom: store.MaxTileZoom,
		Bounds: bounds,
		VectorLayers: []vectorLayer{
			{"cells", "letters of a cell, counted", cells, 0, store.MaxTileZoom},
			{"letters", "the anchor of each letter", map[string]string{
				"id": "Number", "stage": "String", "class": "String", "status": "String", "located_by": "String", "count": "Number: 1",
			}, store.MaxCellZoom + 1, store.MaxTileZoom},
			{"shapes", "geometries that are not points", map[string]string{
				"id": "Number", "class": "String", "status": "String", "located_by": "String",
			}, store.MaxCellZoom + 1, store.MaxTileZoom},
			{"flaws", "where topology breaks", map[string]string{"id": "Number"}, store.MaxCellZoom + 1, store.MaxTileZoom},
		},
	})
}

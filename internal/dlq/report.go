package dlq

import (
	"encoding/json"
	"time"
)

// Report is the failure of a geotask, told by whoever ran it.
type Report struct {
	ReportKey string // names the report, so that a repeat does not count; empty: each counts
	WorkKey   string
	Task      string
	Source    string

	Error, Traceback string
	Stage            Stage
	Class            Class
	HTTPStatus       *int
	ExitCode         *int

	// What the report says of its place, as sent.
	SourceWKB      []byte // in SrcCRS, x, y
	SourceGeometry string // the text of a geometry that could not be read
	SrcCRS         string
	Tile           *Tile
	Bounds         []float64

	Place // what was made of it

	Params      json.RawMessage
	Payload     []byte
	MediaType   string
	PayloadRef  json.RawMessage
	CodeVersion string
	RunID       string
	Host        string
	LogURL      string
	TraceID     string
	EventTime   *time.Time
	Labels      json.RawMessage
}

// Place is where a letter lies, in EPSG:4326.
type Place struct {
	WKB       []byte // little-endian, x = longitude; nil: no geometry
	Anchor    *[2]float64
	LocatedBy LocatedBy
}

// Tile is the address of a tile in the Web Mercator quad (OGC 17-083r4,
// WebMercatorQuad).
type Tile struct {
	Z int `json:"z"`
	X int `json:"x"`
	Y int `json:"y"`
}

// MaxTileZoom is the deepest zoom of a reported tile.
const MaxTileZoom = 30

// Valid reports whether the tile exists.
func (t Tile) Valid() bool {
	return t.Z >= 0 && t.Z <= MaxTileZoom && t.X >= 0 && t.X < 1<<t.Z && t.Y >= 0 && t.Y < 1<<t.Z
}

// ReportReceipt tells what became of a Report.
type ReportReceipt struct {
	WorkKey   string
	LetterID  int64
	Attempts  int
	Created   bool
	Duplicate bool
}

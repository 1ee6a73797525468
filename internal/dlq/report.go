package dlq

import (
	"encoding/json"
	"time"
)

// Report is the failure of a geotask, told by whoever ran it.
type Report struct {
	ReportKey string `json:"report_key,omitempty"` // names the report, so that a repeat does not count; empty: each counts
	WorkKey   string `json:"work_key"`
	Task      string `json:"task"`
	Source    string `json:"source"`

	Error      string `json:"error"`
	Traceback  string `json:"traceback,omitempty"`
	Stage      Stage  `json:"stage"`
	Class      Class  `json:"class"`
	HTTPStatus *int   `json:"http_status,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`

	// What the report says of its place, as sent.
	Geometry []byte    `json:"geometry,omitempty"` // JSON: a GeoJSON object, or a string of WKT
	SrcCRS   string    `json:"src_crs,omitempty"`
	Tile     *Tile     `json:"tile,omitempty"`
	Bounds   []float64 `json:"bounds,omitempty"`

	// What was made of it.
	SourceWKB      []byte `json:"-"` // in SrcCRS, x, y
	SourceGeometry string `json:"-"` // the text of a geometry that could not be read
	Place          `json:"-"`

	Params      json.RawMessage `json:"params,omitempty"`
	Payload     []byte          `json:"payload,omitempty"`
	MediaType   string          `json:"media_type,omitempty"`
	PayloadRef  json.RawMessage `json:"payload_ref,omitempty"`
	CodeVersion string          `json:"code_version,omitempty"`
	RunID       string          `json:"run_id,omitempty"`
	Host        string          `json:"host,omitempty"`
	LogURL      string          `json:"log_url,omitempty"`
	TraceID     string          `json:"trace_id,omitempty"`
	EventTime   *time.Time      `json:"event_time,omitempty"`
	Labels      json.RawMessage `json:"labels,omitempty"`
	ReceivedAt  time.Time       `json:"received_at"`
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
	Replay    bool // the duplicate is of itself: it was handed over before
	Spooled   bool // it waits on disk for the database; LetterID and Attempts are not known yet
}

package dlq

import (
	"encoding/json"
	"time"
)

// Letter is a dead letter: the one row of a work key that failed for good.
type Letter struct {
	ID      int64
	WorkKey string
	Kind    Kind
	EventID *int64 // whose bytes are the payload; nil for a geotask

	Task, Source, CodeVersion, RunID, Host, TraceID, LogURL string
	Labels                                                  json.RawMessage // an object

	Stage          Stage
	Class          Class
	Error          string
	Stack          string
	HTTPStatus     *int
	ExitCode       *int
	Fingerprint    string
	Tries          int // executions in the last run
	Attempts       int // final failures of the work key
	Redrives       int // redrives that failed
	OutcomeUnknown bool
	ContextLost    bool

	Geometry       json.RawMessage // GeoJSON, EPSG:4326; nil where none is trusted
	GeomSimplified bool            // Geometry is thinned out, for looking at
	AnchorLon      *float64
	AnchorLat      *float64
	LocatedBy      LocatedBy
	SrcCRS         string
	GuessCRS       string
	GeomHash       string
	FlawLon        *float64 // where the topology breaks
	FlawLat        *float64
	TileZ          *int
	TileX          *int
	TileY          *int
	Bounds         []float64 // west, south, east, north in degrees

	MediaType  string
	Size       int64
	SHA256     string          // hexadecimal, of the exact payload bytes; empty without payload
	Params     json.RawMessage // an object
	PayloadRef json.RawMessage // {uri, window, nodata}, or nil

	EventTime     *time.Time
	FirstFailedAt time.Time
	FailedAt      time.Time
	RedrivenAt    *time.Time
	ResolvedAt    *time.Time
	NotBefore     *time.Time

	Status  Status
	Reason  string
	Version int
}

// Located reports whether the letter has a place on the map.
func (l *Letter) Located() bool { return l.AnchorLon != nil && l.AnchorLat != nil }

// Payload is the exact bytes of a letter with what they need to be read.
type Payload struct {
	Body      []byte
	MediaType string
	Headers   map[string]string
	SHA256    []byte
	Event     *Event // whose bytes they are; nil for those of a report
}

// HistoryEntry is one thing that happened to a letter.
type HistoryEntry struct {
	ID         int64
	At         time.Time
	Actor      string
	Action     string
	FromStatus Status // empty at the first
	ToStatus   Status
	Reason     string
	JobID      *int64
}

// Tile is the address of the tile that the letter's work was about, or nil.
func (l *Letter) Tile() *Tile {
	if l.TileZ == nil || l.TileX == nil || l.TileY == nil {
		return nil
	}
	return &Tile{Z: *l.TileZ, X: *l.TileX, Y: *l.TileY}
}

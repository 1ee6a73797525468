package views

import (
	"encoding/json"

	"geodlq/internal/dlq"
)

// mapState is what the map draws, as the script reads it.
type mapState struct {
	Tiles   string      `json:"tiles,omitempty"`  // template of the letters' tiles
	About   string      `json:"about,omitempty"`  // TileJSON of them, whose bounds are the extent of what matches
	Items   string      `json:"items,omitempty"`  // template of an order's tiles
	Style   string      `json:"style,omitempty"`  // of the basemap, where it is not the built-in one
	View    string      `json:"view,omitempty"`   // ZOOM/LAT/LON
	Box     *[4]float64 `json:"box,omitempty"`    // of the filter: west, south, east, north
	Extent  *[4]float64 `json:"extent,omitempty"` // of an order's letters
	Open    *openState  `json:"open,omitempty"`
	Running bool        `json:"running,omitempty"` // an order that goes on by itself
}

// openState is the letter that is open.
type openState struct {
	ID       int64           `json:"id"`
	Class    dlq.Class       `json:"class"`
	Guess    bool            `json:"guess,omitempty"`
	Anchor   *[2]float64     `json:"anchor,omitempty"` // longitude, latitude
	Flaw     *[2]float64     `json:"flaw,omitempty"`
	Bounds   []float64       `json:"bounds,omitempty"`
	Geometry json.RawMessage `json:"geometry,omitempty"`
	Sent     json.RawMessage `json:"sent,omitempty"`
}

func corners(b *dlq.Box) *[4]float64 {
	if b == nil {
		return nil
	}
	return &[4]float64{b.West, b.South, b.East, b.North}
}

func openOf(p *LetterPage) *openState {
	if p == nil {
		return nil
	}
	l := p.Letter
	o := &openState{ID: l.ID, Class: l.Class, Guess: l.LocatedBy == dlq.LocatedByGuess, Geometry: drawable(l.Geometry), Sent: drawable(p.SentGeometry)}
	if !l.Class.Valid() {
		o.Class = dlq.ClassUnknown
	}
	if l.Located() {
		o.Anchor = &[2]float64{*l.AnchorLon, *l.AnchorLat}
	}
	if l.FlawLon != nil && l.FlawLat != nil {
		o.Flaw = &[2]float64{*l.FlawLon, *l.FlawLat}
	}
	if len(l.Bounds) == 4 {
		o.Bounds = l.Bounds
	}
	return o
}

// drawable is a geometry that the script can parse, or nil.
func drawable(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" || !json.Valid(raw) {
		return nil
	}
	return raw
}

// String is the state as the value of an attribute.
func (s mapState) String() string {
	text, err := json.Marshal(s)
	if err != nil { // a number that is none: the map does without
		return "{}"
	}
	return string(text)
}

func (p TriagePage) mapState() mapState {
	return mapState{Tiles: TilesURL(p.Filter), About: query("/tiles.json", p.Filter), Style: p.MapStyle, View: p.View, Box: corners(p.Filter.BBox), Open: openOf(p.Open)}
}

func (p LetterPage) mapState() mapState { return mapState{Style: p.MapStyle, Open: openOf(&p)} }

func (p RedrivePage) mapState() mapState {
	return mapState{
		Items: RedriveURL(p.Redrive.ID) + "/tiles/{z}/{x}/{y}.mvt", Style: p.MapStyle, Box: corners(p.Redrive.Filter.BBox), Extent: corners(p.Extent),
		Running: p.Redrive.State == dlq.RedriveRunning || p.Redrive.Counts.Running > 0,
	}
}

// mappable reports whether there is anything of the letter to draw.
func (p LetterPage) mappable() bool {
	return p.Letter.Located() || drawable(p.SentGeometry) != nil || drawable(p.Letter.Geometry) != nil || len(p.Letter.Bounds) == 4
}

// boxValue is a box as its parameter.
func boxValue(b *dlq.Box) string {
	if b == nil {
		return ""
	}
	return b.String()
}

// boxText is a box in few characters: west south east north.
func boxText(b dlq.Box) string {
	return degrees(b.West) + " " + degrees(b.South) + " " + degrees(b.East) + " " + degrees(b.North)
}

func withoutBox(f dlq.Filter) dlq.Filter {
	f.BBox = nil
	return f
}

package views

import (
	"encoding/json"
	"sync"

	"geodlq/internal/dlq"
)

// ClassGlyph is the outline of a class's sign in a box of 12 × 12, as the data of
// an SVG path filled even-odd. Each class has its own shape, so that colour is
// never the only sign of it.
func ClassGlyph(c dlq.Class) string {
	switch c {
	case dlq.ClassMalformedPayload: // a sheet with its corner torn off
		return "M1.5 1.5h5.2l-1 2.6 2.6-.2-.6 2.7 2.8-.8v4.7h-9z"
	case dlq.ClassUnsupportedFormat: // a box with nothing known in it
		return "M1.5 1.5h9v9h-9zM3.5 3.5v5h5v-5z"
	case dlq.ClassInvalidGeometry: // a ring that crosses itself
		return "M1 1.5 6 5l5-3.5v9L6 7l-5 3.5z"
	case dlq.ClassCRSMismatch: // a place off its axes
		return "M6 .5 11.5 6 6 11.5 .5 6z"
	case dlq.ClassUpstreamTimeout: // a clock
		return "M6 .7a5.3 5.3 0 1 1 0 10.6A5.3 5.3 0 0 1 6 .7zM5.3 2.7v3.8h3.5V5.2H6.6V2.7z"
	case dlq.ClassUpstreamError: // a warning sign
		return "M6 .8 11.7 11H.3z"
	case dlq.ClassOOM: // a full cell
		return "M3.3 1h5.4l2.9 5-2.9 5H3.3L.4 6z"
	}
	// A question mark.
	return "M2.6 4.3C2.7 2.2 4 .9 6.1.9c2.1 0 3.5 1.2 3.5 3 0 1.4-.7 2.1-1.7 2.8-.7.5-.9.8-.9 1.5H5c0-1.5.5-2.2 1.5-2.9.7-.5 1-.8 1-1.4 0-.7-.5-1.2-1.4-1.2-1 0-1.5.6-1.6 1.6zM4.9 9.2h2.2v2.1H4.9z"
}

// classClass is the style of a class's colour; class may be anything.
func classClass(c dlq.Class) string {
	if c.Valid() {
		return "c-" + string(c)
	}
	return "c-" + string(dlq.ClassUnknown)
}

// statusClass is the style of a status's pill; status may be anything.
func statusClass(s dlq.Status) string {
	if s.Valid() {
		return "status s-" + string(s)
	}
	return "status"
}

// itemGlyph is the sign of a letter's state in an order, as ClassGlyph is of a
// class.
func itemGlyph(s dlq.RedriveItemState) string {
	switch s {
	case dlq.ItemReplayed: // a tick
		return "M1 6.6 2.8 4.8 5 7l4.4-4.9L11 3.6 5.1 10.4z"
	case dlq.ItemFailed: // a cross
		return "M2.6 1 6 4.4 9.4 1 11 2.6 7.6 6 11 9.4 9.4 11 6 7.6 2.6 11 1 9.4 4.4 6 1 2.6z"
	case dlq.ItemQuarantined: // a closed box
		return "M1.5 1.5h9v9h-9zM3 5.2v1.6h6V5.2z"
	case dlq.ItemSkipped: // a dash
		return "M1.5 5h9v2h-9z"
	case dlq.ItemRunning: // an arrow
		return "M2.5 1 10.5 6l-8 5z"
	}
	// A ring.
	return "M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1zM6 3.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z"
}

// glyphs are the outlines of all classes and item states by name, as the map's
// script draws them.
var glyphs = sync.OnceValue(func() string {
	paths := map[string]string{}
	for _, c := range dlq.Classes {
		paths[string(c)] = ClassGlyph(c)
	}
	for _, s := range dlq.ItemStates {
		paths[string(s)] = itemGlyph(s)
	}
	text, err := json.Marshal(paths)
	if err != nil {
		panic(err) // strings are always JSON
	}
	return string(text)
})

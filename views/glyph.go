package views

import "geodlq/internal/dlq"

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

package dlq

import (
	"strings"
	"unicode/utf8"
)

// Limits of what a letter keeps of an error, in characters.
const (
	MaxError = 2000
	MaxStack = 8000
)

// Failure is how one run of an event ended. It travels in the output of its
// River job, where the capture trigger finds it, and so names its JSON.
type Failure struct {
	Stage          Stage       `json:"stage"`
	Class          Class       `json:"class"`
	Error          string      `json:"error"`
	Stack          string      `json:"stack,omitempty"`
	HTTPStatus     *int        `json:"http_status,omitempty"`
	ExitCode       *int        `json:"exit_code,omitempty"` // of a process that died over it
	Fingerprint    string      `json:"fingerprint"`
	Tries          int         `json:"tries"`
	OutcomeUnknown bool        `json:"outcome_unknown,omitempty"` // the sink may have taken it
	SrcCRS         string      `json:"src_crs,omitempty"`         // as claimed
	WKB            []byte      `json:"wkb,omitempty"`             // EPSG:4326, x = longitude
	Anchor         *[2]float64 `json:"anchor,omitempty"`          // [longitude, latitude]
	InvalidAt      *[2]float64 `json:"invalid_at,omitempty"`      // [longitude, latitude] of the flaw
	// WKBStored: the geometry was too large for the job's output and went to a
	// row of its own first.
	WKBStored bool `json:"wkb_stored,omitempty"`
}

// CleanText makes text fit for a text column and for JSON: valid UTF-8, no NUL,
// at most limit characters.
func CleanText(s string, limit int) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	n := 0
	for i := range s {
		if n == limit {
			return s[:i]
		}
		n++
	}
	return s
}

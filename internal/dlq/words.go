// Package dlq is the domain: events, dead letters, the words that classify
// them, the transitions between their states, and the filter that selects
// them. It imports nothing of ours and knows neither HTTP nor SQL.
package dlq

import "slices"

// Stage is where in the pipeline a unit of work failed.
type Stage string

// The stages, in the order in which an event passes them.
const (
	StageEnvelope   Stage = "envelope"   // transport, media type, coding, size
	StageParse      Stage = "parse"      // bytes to geometry
	StageValidate   Stage = "validate"   // finite, rings, topology
	StageCRS        Stage = "crs"        // claim known, claims agree, coordinates fit it
	StageDownstream Stage = "downstream" // the sink, or work done elsewhere
)

// Stages lists every stage in pipeline order.
var Stages = []Stage{StageEnvelope, StageParse, StageValidate, StageCRS, StageDownstream}

// Valid reports whether s is one of Stages.
func (s Stage) Valid() bool { return slices.Contains(Stages, s) }

// Class is why a unit of work failed, coarsely.
type Class string

// The classes. There are eight and no more: Unknown is meant to be read.
const (
	ClassMalformedPayload  Class = "malformed_payload"
	ClassUnsupportedFormat Class = "unsupported_format"
	ClassInvalidGeometry   Class = "invalid_geometry"
	ClassCRSMismatch       Class = "crs_mismatch"
	ClassUpstreamTimeout   Class = "upstream_timeout"
	ClassUpstreamError     Class = "upstream_error"
	ClassOOM               Class = "oom"
	ClassUnknown           Class = "unknown"
)

// Classes lists every class.
var Classes = []Class{
	ClassMalformedPayload, ClassUnsupportedFormat, ClassInvalidGeometry, ClassCRSMismatch,
	ClassUpstreamTimeout, ClassUpstreamError, ClassOOM, ClassUnknown,
}

// Valid reports whether c is one of Classes.
func (c Class) Valid() bool { return slices.Contains(Classes, c) }

// LocatedBy tells how a letter came to its place.
type LocatedBy string

// The ways in which a letter is located.
const (
	LocatedByGeometry LocatedBy = "geometry" // trusted, EPSG:4326
	LocatedByTile     LocatedBy = "tile"     // its z/x/y or bounds
	LocatedByGuess    LocatedBy = "guess"    // a ranked CRS hypothesis, drawn apart
	LocatedByNone     LocatedBy = "none"     // no place; counted wherever letters are counted
)

// LocatedBys lists every way in which a letter is located.
var LocatedBys = []LocatedBy{LocatedByGeometry, LocatedByTile, LocatedByGuess, LocatedByNone}

// Valid reports whether l is one of LocatedBys.
func (l LocatedBy) Valid() bool { return slices.Contains(LocatedBys, l) }

// Kind tells whether a letter's work is ours to run or somebody else's.
type Kind string

// The kinds of a letter.
const (
	KindEvent   Kind = "event"   // received and processed here
	KindGeotask Kind = "geotask" // done elsewhere, its failure reported
)

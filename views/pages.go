// Package views holds the pages: templ components that take typed parameters,
// query nothing and change nothing. What they show of letters came from outside
// and is never trusted: it is escaped, bounded by whoever passes it, and set
// apart so that its direction and length stay its own.
package views

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"geodlq/internal/dlq"
)

// TriagePage is the page at /: the queue, and its letters under a filter.
type TriagePage struct {
	Outage    *Outage     // nil: all is well
	Reads     *Reads      // nil: there is no replica
	Depth     *dlq.Depth  // nil hides the strip
	Charts    *dlq.Charts // nil hides the charts
	Filter    dlq.Filter
	Letters   []dlq.Letter
	Next      string      // path of the next page, "" on the last
	First     string      // path of the first page when this is not it, else ""
	Self      string      // path of this page, where an action returns to; "": Home(Filter)
	View      string      // the view of the map, ZOOM/LAT/LON as given, "" if none
	Open      *LetterPage // the letter open beside the map, nil if none
	Demo      *Demo       // nil outside the demo
	Notice    string      // what a form just did, or why it could not
	NoticeBad bool
	Undo      *UndoOffer // what can be taken back, nil if nothing
	Now       time.Time
	AnyEver   bool   // false: the queue has never had a letter
	BaseURL   string // where events are sent, in the example of an empty queue; "": DefaultBaseURL
	MapStyle  string // URL of a style for the basemap, "" for the built-in one
}

// UndoOffer is a redrive of one letter that has not run yet.
type UndoOffer struct {
	LetterID int64
	Until    time.Time // from when on it is too late
}

// DefaultBaseURL is where geodlq listens unless told otherwise.
const DefaultBaseURL = "http://127.0.0.1:8080"

// Demo is the state of the demo's sink.
type Demo struct {
	SinkDown bool
	Region   string // where it is down, or was
}

// LetterPage is the page of one letter.
type LetterPage struct {
	Outage  *Outage // nil: all is well
	Letter  *dlq.Letter
	Payload PayloadView
	History []dlq.HistoryEntry // oldest first
	// SentGeometry is a GeoJSON geometry in degrees of the coordinates as sent,
	// where they can be drawn, be it that none of them is storable.
	SentGeometry json.RawMessage
	SentNote     string // what SentGeometry is, such as "as sent, in EPSG:25833"
	Notice       string // what a form just did, or why it could not
	NoticeBad    bool
	Undo         *UndoOffer // what can be taken back, nil if nothing
	Beside       bool       // it is part of the triage page
	Now          time.Time
	MapStyle     string // URL of a style for the basemap, "" for the built-in one
}

// RedrivePage is the page of one order.
type RedrivePage struct {
	Outage    *Outage // nil: all is well
	Redrive   dlq.Redrive
	Items     []dlq.RedriveItem
	Next      string               // path of the next page of items, "" on the last
	First     string               // path of the first page when this is not it, else ""
	State     dlq.RedriveItemState // of the items listed, "" for all
	Groups    []dlq.Group          // what the groups of its filter are called
	Extent    *dlq.Box             // of the letters that have a place, nil if none has
	Now       time.Time
	Notice    string // what a form just did, or why it could not
	NoticeBad bool
	MapStyle  string // URL of a style for the basemap, "" for the built-in one
}

// RedrivesPage lists the orders, the newest first.
type RedrivesPage struct {
	Outage   *Outage // nil: all is well
	Redrives []dlq.Redrive
	Next     string // path of the next page, "" on the last
	Now      time.Time
}

// PayloadView is what to show of a payload; its maker bounds Text and Hex.
type PayloadView struct {
	Missing bool
	Title   string // what is the matter where it is missing
	Why     string // why it is missing
	Lost    bool   // it should be there, so its size, type and hash are known
	Text    string // pretty or verbatim
	Hex     string // a dump, where the payload is not text
	// Truncated: Text or Hex is the beginning only.
	Truncated bool
	Size      int64 // bytes
	MediaType string
	SHA256    string // hexadecimal
	Headers   []Header
}

// Header is one header that came with a payload.
type Header struct{ Name, Value string }

// ProblemPage is an error as a page.
type ProblemPage struct {
	Outage *Outage // nil: all is well
	Status int
	Title  string // "": the text of Status
	Detail string
	Fields []FieldProblem
}

// FieldProblem is what is wrong with one value of the request.
type FieldProblem struct{ Field, Reason string }

// self is where this page stands, and where its forms return to.
func (p TriagePage) self() string {
	if p.Self != "" {
		return withParams(p.Self, "undo", "")
	}
	return p.home(p.Filter)
}

// home is the first page under another filter, on the same view of the map.
func (p TriagePage) home(f dlq.Filter) string { return withParams(Home(f), "map", p.View) }

// opened is this page with another letter open, closed with none.
func (p TriagePage) opened(id int64) string {
	return withParams(p.self(), "letter", strconv.FormatInt(id, 10), "map", p.View)
}

func (p TriagePage) closed() string {
	return withParams(p.self(), "letter", "", "map", p.View)
}

// neighbour is the letter so many rows below the open one, 0 if none is listed.
func (p TriagePage) neighbour(rows int) int64 {
	i := slices.IndexFunc(p.Letters, func(l dlq.Letter) bool { return p.isOpen(l.ID) })
	if i < 0 || i+rows < 0 || i+rows >= len(p.Letters) {
		return 0
	}
	return p.Letters[i+rows].ID
}

func (p TriagePage) isOpen(id int64) bool { return p.Open != nil && p.Open.Letter.ID == id }

func (p TriagePage) baseURL() string {
	if p.BaseURL != "" {
		return p.BaseURL
	}
	return DefaultBaseURL
}

func (p TriagePage) groups() []dlq.Group {
	if c := p.Charts; c != nil {
		return c.Groups
	}
	return nil
}

// total is how many letters match, as far as it is known.
func (p TriagePage) total() int64 {
	if c := p.Charts; c != nil {
		return c.Total
	}
	return int64(len(p.Letters))
}

// conditional reports whether the filter says more than which statuses: without,
// an order over all that match is an order over the whole queue.
func (p TriagePage) conditional() bool {
	return len(WithStatuses(p.Filter).Values()) > 0
}

// filtered reports whether the filter leaves anything out.
func (p TriagePage) filtered() bool { return len(p.Filter.Values()) > 0 }

func (p ProblemPage) title() string {
	switch {
	case p.away():
		return "The database is away"
	case p.Title != "":
		return p.Title
	case http.StatusText(p.Status) != "":
		return http.StatusText(p.Status)
	}
	return "Something went wrong"
}

// away reports whether the problem is that the database is.
func (p ProblemPage) away() bool {
	return p.Status == http.StatusServiceUnavailable && p.Outage != nil && !p.Outage.Since.IsZero()
}

// advice is what to do about a problem.
func (p ProblemPage) advice() string {
	if p.away() {
		return "" // said above
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "Correct the address or the form and try again, or start from the whole queue."
	case http.StatusNotFound:
		return "The link may be old: resolved letters are let go after a while. Search for the work key, or look through the queue."
	case http.StatusConflict:
		return "Somebody or something was first. Go back and reload to see how things stand now."
	case http.StatusRequestEntityTooLarge:
		return "Send less at once."
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "Wait a moment and reload. Events are accepted for as long as they can be kept; nothing accepted is lost."
	}
	if p.Status >= http.StatusInternalServerError {
		return "It has been logged. Reload in a moment; if it stays, look into the log of the server."
	}
	return ""
}

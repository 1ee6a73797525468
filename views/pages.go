// Package views holds the pages: templ components that take typed parameters,
// query nothing and change nothing. What they show of letters came from outside
// and is never trusted: it is escaped, bounded by whoever passes it, and set
// apart so that its direction and length stay its own.
package views

import (
	"net/http"
	"time"

	"geodlq/internal/dlq"
)

// TriagePage is the page at /: the queue, and its letters under a filter.
type TriagePage struct {
	Depth *dlq.Depth // nil hides the strip
	// Stats are the counts under the filter. ByStage, ByClass and Groups may as
	// well be counted with their own dimension left out of it.
	Stats     *dlq.Stats
	Filter    dlq.Filter
	Letters   []dlq.Letter
	Next      string // path of the next page, "" on the last
	First     string // path of the first page when this is not it, else ""
	Self      string // path of this page, where an action returns to; "": Home(Filter)
	Demo      *Demo  // nil outside the demo
	Notice    string // what a form just did, or why it could not
	NoticeBad bool
	Now       time.Time
	AnyEver   bool   // false: the queue has never had a letter
	BaseURL   string // where events are sent, in the example of an empty queue; "": DefaultBaseURL
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
	Letter    *dlq.Letter
	Payload   PayloadView
	History   []dlq.HistoryEntry // oldest first
	Notice    string             // what a form just did, or why it could not
	NoticeBad bool
	Now       time.Time
}

// PayloadView is what to show of a payload; its maker bounds Text and Hex.
type PayloadView struct {
	Missing bool
	Why     string // why it is missing
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
	Status int
	Title  string // "": the text of Status
	Detail string
	Fields []FieldProblem
}

// FieldProblem is what is wrong with one value of the request.
type FieldProblem struct{ Field, Reason string }

func (p TriagePage) self() string {
	if p.Self != "" {
		return p.Self
	}
	return Home(p.Filter)
}

func (p TriagePage) baseURL() string {
	if p.BaseURL != "" {
		return p.BaseURL
	}
	return DefaultBaseURL
}

func (p TriagePage) groups() []dlq.Group {
	if p.Stats == nil {
		return nil
	}
	return p.Stats.Groups
}

// filtered reports whether the filter leaves anything out.
func (p TriagePage) filtered() bool { return len(p.Filter.Values()) > 0 }

func (p ProblemPage) title() string {
	switch {
	case p.Title != "":
		return p.Title
	case http.StatusText(p.Status) != "":
		return http.StatusText(p.Status)
	}
	return "Something went wrong"
}

// advice is what to do about a problem.
func (p ProblemPage) advice() string {
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

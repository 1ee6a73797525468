package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
	"geodlq/internal/store"
	"geodlq/views"
)

// problem is problem details (RFC 9457).
type problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Errors []problemField `json:"errors,omitempty"`

	retryAfter int // seconds; 0: none
}

type problemField struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// statuses is the one map from the domain's errors to HTTP.
var statuses = []struct {
	err    error
	status int
	detail string // empty: the error's own words are for people
}{
	{dlq.ErrNotFound, http.StatusNotFound, "There is nothing at this address."},
	{dlq.ErrDuplicate, http.StatusConflict, "This key was used for another body. A key names one unit of work: send the same bytes, or another key."},
	{dlq.ErrConflict, http.StatusConflict, ""},
	{dlq.ErrInvalid, http.StatusUnprocessableEntity, ""},
	{dlq.ErrBadRequest, http.StatusBadRequest, ""},
	{dlq.ErrTooLarge, http.StatusRequestEntityTooLarge, ""},
	{dlq.ErrTooSlow, http.StatusUnprocessableEntity, tooSlow},
	{dlq.ErrNoRoom, http.StatusServiceUnavailable, "The database is away, and the spool on this server's disk is full or can't be written. Nothing was stored; send it again later, under the same key."},
	{payload.ErrMissing, http.StatusGone, "These bytes were too large for the database and were kept in the bucket, where they are missing now: deleted there, or never restored. The rest of the letter stands; send the event again, under another key, or restore the bucket."},
	{dlq.ErrCorrupt, http.StatusInternalServerError, "The stored bytes no longer match the SHA-256 of what was received, so they are not given out."},
	{payload.ErrUnavailable, http.StatusServiceUnavailable, "The bucket of large payloads can't be reached. What was asked may not have been done; send it again, under the same key."},
	{dlq.ErrOverloaded, http.StatusServiceUnavailable, "Too much is asked of this server at once. Nothing was stored or changed; ask again in a moment."},
}

// tooSlow is what to do about a filter that takes too long.
const tooSlow = "This filter takes too long: it has to look at the letters one by one. Narrow it down with a time range, " +
	"a class, a stage, a source or a smaller box; text (q), prop, crs, code_version, work_key and bbox are the slow ones."

// problemOf says an error in words for the client; internal text stays inside.
func (s *Server) problemOf(err error) problem {
	var httpErr *echo.HTTPError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return newProblem(http.StatusRequestEntityTooLarge, "The body is larger than "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes.")
	case errors.As(err, &httpErr):
		return newProblem(httpErr.Code, httpDetail(httpErr))
	}
	for _, known := range statuses {
		if !errors.Is(err, known.err) {
			continue
		}
		p := newProblem(known.status, known.detail)
		var field *dlq.FieldError
		var conflict *dlq.ConflictError
		switch {
		case errors.As(err, &field):
			p.Detail = field.Error()
			p.Errors = []problemField{{field.Field, field.Reason}}
		case errors.As(err, &conflict):
			p.Detail = upperFirst(conflict.Reason) + "."
		case p.Detail == "":
			p.Detail = known.err.Error()
		}
		if known.status == http.StatusServiceUnavailable {
			p.retryAfter = 1
		}
		return p
	}
	if isAway(err) {
		s.door.Away(err)
		p := newProblem(http.StatusServiceUnavailable, "The database "+store.WhyUnavailable(err)+". Events and reports are still taken; this may not have been done, and can be asked again when it is back.")
		p.retryAfter = 5
		return p
	}
	return newProblem(http.StatusInternalServerError, "Something broke on our side; it is logged.")
}

func newProblem(status int, detail string) problem {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

func httpDetail(e *echo.HTTPError) string {
	switch e.Code {
	case http.StatusNotFound:
		return "There is nothing at this address."
	case http.StatusMethodNotAllowed:
		return "This address does not take that method."
	}
	if text, ok := e.Message.(string); ok {
		return text
	}
	return http.StatusText(e.Code)
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// writeError is where every error becomes an answer: a page for who wants HTML,
// problem details for others.
func (s *Server) writeError(err error, c echo.Context) {
	if errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
		return // nobody waits for an answer
	}
	p := s.problemOf(err)
	if p.Status >= 500 && s.mayComplain(p.Status) {
		s.logger.Error("request failed", "method", c.Request().Method, "route", c.Path(), "status", p.Status, "error", err)
	}
	if c.Response().Committed {
		return
	}
	h := c.Response().Header()
	h.Add("Vary", "Accept")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.Status == http.StatusRequestEntityTooLarge || p.Status == http.StatusServiceUnavailable {
		h.Set("Connection", "close") // the rest of the body is not read
	}
	if wantsPage(c) {
		s.writeErrorPage(c, p)
		return
	}
	h.Set(echo.HeaderContentType, "application/problem+json")
	c.Response().WriteHeader(p.Status)
	_ = encodeJSON(c.Response(), p)
}

// complainEvery is how often refusals for lack of a database or of room are logged:
// they come many at a time.
const complainEvery = time.Second

func (s *Server) mayComplain(status int) bool {
	if status != http.StatusServiceUnavailable {
		return true
	}
	last, now := s.complained.Load(), time.Now().UnixNano()
	return now-last > int64(complainEvery) && s.complained.CompareAndSwap(last, now)
}

func (s *Server) writeErrorPage(c echo.Context, p problem) {
	fields := make([]views.FieldProblem, len(p.Errors))
	for i, f := range p.Errors {
		fields[i] = views.FieldProblem{Field: f.Field, Reason: f.Detail}
	}
	var page bytes.Buffer
	component := views.Problem(views.ProblemPage{Status: p.Status, Title: p.Title, Detail: p.Detail, Fields: fields, Outage: s.outage()})
	// The request's time may be over, which is what the page tells of.
	if err := component.Render(context.WithoutCancel(c.Request().Context()), &page); err != nil {
		s.logger.Error("error page not rendered", "error", err)
	}
	_ = c.HTMLBlob(p.Status, page.Bytes())
}

func wantsPage(c echo.Context) bool {
	path := c.Request().URL.Path
	return !strings.HasPrefix(path, "/v1/") && strings.Contains(c.Request().Header.Get("Accept"), "text/html")
}

package web

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
)

// letterFeature is a letter as GeoJSON.
type letterFeature struct {
	Type       string           `json:"type"`
	ID         int64            `json:"id"`
	Geometry   json.RawMessage  `json:"geometry"`
	Properties letterProperties `json:"properties"`
}

type letterProperties struct {
	ID          int64           `json:"id"`
	WorkKey     string          `json:"work_key"`
	Kind        dlq.Kind        `json:"kind"`
	Task        string          `json:"task"`
	Source      string          `json:"source"`
	CodeVersion string          `json:"code_version"`
	RunID       string          `json:"run_id"`
	Host        string          `json:"host"`
	TraceID     string          `json:"trace_id"`
	LogURL      string          `json:"log_url"`
	Labels      json.RawMessage `json:"labels"`

	Stage          dlq.Stage `json:"stage"`
	Class          dlq.Class `json:"class"`
	Error          string    `json:"error"`
	Stack          *string   `json:"stack,omitempty"`
	HTTPStatus     *int      `json:"http_status"`
	ExitCode       *int      `json:"exit_code"`
	Group          string    `json:"group"`
	Tries          int       `json:"tries"`
	Attempts       int       `json:"attempts"`
	Redrives       int       `json:"redrives"`
	OutcomeUnknown bool      `json:"outcome_unknown"`
	ContextLost    bool      `json:"context_lost"`

	Anchor     *[2]float64   `json:"anchor"`
	LocatedBy  dlq.LocatedBy `json:"located_by"`
	SrcCRS     string        `json:"src_crs"`
	GuessCRS   string        `json:"guess_crs"`
	GeomHash   string        `json:"geom_hash"`
	Simplified bool          `json:"geom_simplified"`
	InvalidAt  *[2]float64   `json:"invalid_at"`
	Tile       *dlq.Tile     `json:"tile"`
	Bounds     []float64     `json:"bounds"`

	MediaType  string          `json:"media_type"`
	Size       int64           `json:"size"`
	SHA256     string          `json:"sha256"`
	Params     json.RawMessage `json:"params"`
	PayloadRef json.RawMessage `json:"payload_ref"`

	EventTime     *time.Time `json:"event_time"`
	FirstFailedAt time.Time  `json:"first_failed_at"`
	FailedAt      time.Time  `json:"failed_at"`
	RedrivenAt    *time.Time `json:"redriven_at"`
	ResolvedAt    *time.Time `json:"resolved_at"`
	NotBefore     *time.Time `json:"not_before"`

	Status  dlq.Status `json:"status"`
	Reason  string     `json:"reason"`
	Version int        `json:"version"`
}

// featureOf is a letter as a Feature; its geometry is null unless the letter is
// located by geometry or tile.
func featureOf(l *dlq.Letter) letterFeature {
	f := letterFeature{Type: "Feature", ID: l.ID, Properties: letterProperties{
		ID: l.ID, WorkKey: l.WorkKey, Kind: l.Kind, Task: l.Task, Source: l.Source, CodeVersion: l.CodeVersion,
		RunID: l.RunID, Host: l.Host, TraceID: l.TraceID, LogURL: l.LogURL, Labels: l.Labels,
		Stage: l.Stage, Class: l.Class, Error: l.Error, HTTPStatus: l.HTTPStatus, ExitCode: l.ExitCode,
		Group: l.Fingerprint, Tries: l.Tries, Attempts: l.Attempts, Redrives: l.Redrives,
		OutcomeUnknown: l.OutcomeUnknown, ContextLost: l.ContextLost,
		Anchor: point(l.AnchorLon, l.AnchorLat), LocatedBy: l.LocatedBy, SrcCRS: l.SrcCRS, GuessCRS: l.GuessCRS,
		GeomHash: l.GeomHash, Simplified: l.GeomSimplified, InvalidAt: point(l.FlawLon, l.FlawLat), Tile: l.Tile(), Bounds: l.Bounds,
		MediaType: l.MediaType, Size: l.Size, SHA256: l.SHA256, Params: l.Params, PayloadRef: l.PayloadRef,
		EventTime: utc(l.EventTime), FirstFailedAt: l.FirstFailedAt.UTC(), FailedAt: l.FailedAt.UTC(),
		RedrivenAt: utc(l.RedrivenAt), ResolvedAt: utc(l.ResolvedAt), NotBefore: utc(l.NotBefore),
		Status: l.Status, Reason: l.Reason, Version: l.Version,
	}}
	if l.LocatedBy == dlq.LocatedByGeometry || l.LocatedBy == dlq.LocatedByTile {
		f.Geometry = l.Geometry
	}
	return f
}

func point(x, y *float64) *[2]float64 {
	if x == nil || y == nil {
		return nil
	}
	return &[2]float64{*x, *y}
}

// letterCollection is a page of letters (OGC 17-069r4 §7.15).
type letterCollection struct {
	Type           string          `json:"type"`
	Features       []letterFeature `json:"features"`
	NumberMatched  *int64          `json:"numberMatched,omitempty"` // on the first page
	NumberReturned int             `json:"numberReturned"`
	Links          []link          `json:"links"`
	TimeStamp      time.Time       `json:"timeStamp"`
}

type link struct {
	Rel  string `json:"rel"`
	Type string `json:"type"`
	Href string `json:"href"`
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (s *Server) getLetters(c echo.Context) error {
	q, err := readQuery(c, "limit", "after")
	if err != nil {
		return err
	}
	limit, err := readLimit(q.values)
	if err != nil {
		return err
	}
	page, matched, err := s.readPage(c.Request().Context(), q, limit)
	if err != nil {
		return err
	}
	out := letterCollection{
		Type: "FeatureCollection", Features: []letterFeature{}, NumberMatched: matched, NumberReturned: len(page.Letters),
		Links: []link{q.link("self", q.after, limit)}, TimeStamp: time.Now().UTC(),
	}
	for i := range page.Letters {
		out.Features = append(out.Features, featureOf(&page.Letters[i]))
	}
	if page.Next != nil {
		out.Links = append(out.Links, q.link("next", page.Next, limit))
	}
	return answerJSON(c, http.StatusOK, mediaGeoJSON, out)
}

// readPage reads a page of letters, and how many there are if it is the first.
func (s *Server) readPage(ctx context.Context, q *query, limit int) (page *dlq.Page, matched *int64, err error) {
	if q.after != nil {
		page, err = s.store.Letters(ctx, q.filter, q.after, limit)
		return page, nil, err
	}
	page, n, err := s.store.CountedLetters(ctx, q.filter, limit)
	return page, &n, err
}

// query is a filter with a place in its pages.
type query struct {
	values url.Values
	filter dlq.Filter
	after  *dlq.Cursor
}

// readQuery reads a filter and a cursor. A name that is neither is refused: a
// misspelt filter would select everything.
func readQuery(c echo.Context, known ...string) (*query, error) {
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, dlq.BadRequest("query", "can't be read: %v", err)
	}
	if unknown := dlq.UnknownNames(values, known...); len(unknown) > 0 {
		return nil, dlq.BadRequest(dlq.CleanText(unknown[0], 60), "is no parameter of this address")
	}
	q := &query{values: values}
	if q.filter, err = dlq.ParseFilter(values, time.Now()); err != nil {
		return nil, err
	}
	if text := values.Get("after"); text != "" {
		q.after, err = dlq.ParseCursor(text)
	}
	return q, err
}

func readLimit(v url.Values) (int, error) {
	text := v.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, dlq.BadRequest("limit", "must be 1 to %d", maxLimit)
	}
	return n, nil
}

// link carries the filter with its times made absolute, so that every page of a
// list is of one set.
func (q *query) link(rel string, after *dlq.Cursor, limit int) link {
	v := q.filter.Values()
	v.Set("limit", strconv.Itoa(limit))
	if after != nil {
		v.Set("after", after.String())
	}
	return link{Rel: rel, Type: mediaGeoJSON, Href: "/v1/dead-letters?" + v.Encode()}
}

func letterID(c echo.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("letter id: %w", dlq.ErrNotFound)
	}
	return id, nil
}

func (s *Server) getLetter(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	letter, err := s.store.Letter(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answerLetter(c, letter)
}

func answerLetter(c echo.Context, letter *dlq.Letter) error {
	f := featureOf(letter)
	f.Properties.Stack = &letter.Stack
	return answerJSON(c, http.StatusOK, mediaGeoJSON, f)
}

// getPayload answers with the exact bytes as they were received. Their content
// coding stands in a header of its own, so that no client undoes it on the way.
func (s *Server) getPayload(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	h := &hold{budget: s.inFlight}
	defer h.release()
	payload, err := s.store.Payload(c.Request().Context(), id, h.take)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	// Payloads are hostile: never shown, never run.
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="letter-%d%s"`, id, extension(payload.MediaType)))
	header.Set("ETag", `"`+hex.EncodeToString(payload.SHA256)+`"`)
	header.Set("Geodlq-Sha256", hex.EncodeToString(payload.SHA256))
	for name, value := range payload.Headers {
		header.Set("Geodlq-Sent-"+name, headerValue(value))
	}
	return c.Blob(http.StatusOK, payloadType(payload.MediaType), payload.Body)
}

// payloadType is the media type as sent, unless it can't stand in a header.
func payloadType(sent string) string {
	if sent == "" || headerValue(sent) != sent {
		return "application/octet-stream"
	}
	return sent
}

// headerValue is text that may stand in a header (RFC 9110 §5.5).
func headerValue(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

func extension(mediaType string) string {
	switch {
	case strings.Contains(mediaType, "geo+json"):
		return ".geojson"
	case strings.Contains(mediaType, "json"):
		return ".json"
	case strings.HasPrefix(mediaType, "text/"):
		return ".txt"
	}
	return ".bin"
}

type historyAnswer struct {
	LetterID int64          `json:"letter_id"`
	History  []historyEntry `json:"history"`
}

type historyEntry struct {
	At     time.Time  `json:"at"`
	Actor  string     `json:"actor"`
	Action string     `json:"action"`
	From   dlq.Status `json:"from"`
	To     dlq.Status `json:"to"`
	Reason string     `json:"reason"`
	JobID  *string    `json:"job_id"`
}

func (s *Server) getHistory(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	entries, err := s.store.History(c.Request().Context(), id)
	if err != nil {
		return err
	}
	out := historyAnswer{LetterID: id, History: []historyEntry{}}
	for _, e := range entries {
		entry := historyEntry{At: e.At.UTC(), Actor: e.Actor, Action: e.Action, From: e.FromStatus, To: e.ToStatus, Reason: e.Reason}
		if e.JobID != nil {
			entry.JobID = jobID(*e.JobID)
		}
		out.History = append(out.History, entry)
	}
	return answerJSON(c, http.StatusOK, mediaJSON, out)
}

// postAction redrives, quarantines, releases or abandons one letter.
func (s *Server) postAction(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	a, err := action(c)
	if err != nil {
		return err
	}
	h := &hold{budget: s.inFlight}
	defer h.release()
	text, err := readBody(c.Response(), c.Request(), 64<<10, h)
	if err != nil {
		return err
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if len(strings.TrimSpace(string(text))) > 0 {
		if err := readJSON(text, &body); err != nil {
			return err
		}
	}
	letter, err := s.desk.Act(c.Request().Context(), id, a, actorOf(false), body.Reason)
	if err != nil {
		return err
	}
	return answerLetter(c, letter)
}

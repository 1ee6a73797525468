package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/triage"
)

// redriveBody is the body of POST /v1/redrives.
type redriveBody struct {
	Action        dlq.Action                 `json:"action"`
	Filter        map[string]json.RawMessage `json:"filter"`
	IDs           []int64                    `json:"ids"`
	DryRun        bool                       `json:"dry_run"`
	RatePerSecond json.RawMessage            `json:"rate_per_second"`
	Canary        json.RawMessage            `json:"canary"`
	Reason        string                     `json:"reason"`
}

type redriveAnswer struct {
	ID            int64            `json:"id"`
	Action        dlq.Action       `json:"action"`
	State         dlq.RedriveState `json:"state"`
	Filter        map[string]any   `json:"filter"`
	Matched       int64            `json:"matched"`
	Eligible      int64            `json:"eligible"`
	BadData       int64            `json:"bad_data"`
	ByClass       []redriveCount   `json:"by_class"`
	ByStage       []redriveCount   `json:"by_stage"`
	Refused       []refusal        `json:"refused"`
	Counts        redriveCounts    `json:"counts"`
	RatePerSecond *float64         `json:"rate_per_second"`
	Canary        *struct{}        `json:"canary"`
	StoppedBy     *string          `json:"stopped_because"`
	Actor         string           `json:"actor"`
	Reason        string           `json:"reason"`
	CreatedAt     time.Time        `json:"created_at"`
	StartedAt     *time.Time       `json:"started_at"`
	EndedAt       *time.Time       `json:"ended_at"`
}

type redriveCount struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

type refusal struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

type redriveCounts struct {
	Waiting     int64 `json:"waiting"`
	Running     int64 `json:"running"`
	Replayed    int64 `json:"replayed"`
	Failed      int64 `json:"failed"`
	Quarantined int64 `json:"quarantined"`
	Skipped     int64 `json:"skipped"`
}

func redriveOf(r *dlq.Redrive) redriveAnswer {
	out := redriveAnswer{
		ID: r.ID, Action: r.Action, State: r.State, Filter: filterJSON(r.Filter), Matched: r.Matched, Eligible: r.Eligible,
		BadData: r.BadData, ByClass: redriveCountsOf(r.ByClass), ByStage: redriveCountsOf(r.ByStage), Refused: []refusal{},
		Counts: redriveCounts(r.Counts), Actor: r.Actor, Reason: r.Reason,
		CreatedAt: r.CreatedAt.UTC(), StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt),
	}
	for _, f := range r.Refused {
		out.Refused = append(out.Refused, refusal(f))
	}
	return out
}

func redriveCountsOf(counts []dlq.Count) []redriveCount {
	out := make([]redriveCount, len(counts))
	for i, c := range counts {
		out[i] = redriveCount{c.Name, c.Count}
	}
	return out
}

// filterJSON is a filter as JSON has it: one value as a scalar, several as an
// array.
func filterJSON(f dlq.Filter) map[string]any {
	out := map[string]any{}
	for name, values := range f.Values() {
		if len(values) == 1 {
			out[name] = values[0]
		} else {
			out[name] = values
		}
	}
	return out
}

// filterOf reads a filter in JSON: the names of a query string, repeatable ones as
// scalars or arrays, bbox as a string or an array, and everything.
func filterOf(body map[string]json.RawMessage, now time.Time) (f dlq.Filter, everything bool, err error) {
	values := url.Values{}
	for name, raw := range body {
		if name == "everything" {
			if err := json.Unmarshal(raw, &everything); err != nil {
				return f, false, dlq.Invalid("filter.everything", "must be true or false")
			}
			continue
		}
		texts, err := filterTexts(name, raw)
		if err != nil {
			return f, false, err
		}
		values[name] = texts
	}
	if unknown := dlq.UnknownNames(values); len(unknown) > 0 {
		return f, false, dlq.Invalid("filter."+dlq.CleanText(unknown[0], 60), "is no part of a filter")
	}
	f, err = dlq.ParseFilter(values, now)
	if field, ok := err.(*dlq.FieldError); ok {
		return f, false, dlq.Invalid("filter."+field.Field, "%s", field.Reason)
	}
	return f, everything, err
}

func filterTexts(name string, raw json.RawMessage) ([]string, error) {
	var members []json.RawMessage
	if isNull(raw) {
		return nil, nil
	}
	if json.Unmarshal(raw, &members) != nil {
		members = []json.RawMessage{raw}
	}
	texts := make([]string, len(members))
	for i, member := range members {
		var text string
		switch {
		case json.Unmarshal(member, &text) == nil:
			texts[i] = text
		case len(member) > 0 && member[0] != '{' && member[0] != '[':
			texts[i] = string(member) // a number or a boolean
		default:
			return nil, dlq.Invalid("filter."+dlq.CleanText(name, 60), "must be a value or an array of values")
		}
	}
	if name == "bbox" && len(texts) > 1 {
		return []string{strings.Join(texts, ",")}, nil
	}
	return texts, nil
}

// postRedrive makes an order: 202 once it runs, 200 for the preview of a dry run.
func (s *Server) postRedrive(c echo.Context) error {
	h := &hold{budget: s.inFlight}
	defer h.release()
	text, err := readBody(c.Response(), c.Request(), 1<<20, h)
	if err != nil {
		return err
	}
	var body redriveBody
	if err := readJSON(text, &body); err != nil {
		return err
	}
	order, err := body.order()
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	redrive, err := s.desk.Preview(ctx, order)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Location", fmt.Sprintf("/v1/redrives/%d", redrive.ID))
	if body.DryRun {
		return answerJSON(c, http.StatusOK, mediaJSON, redriveOf(redrive))
	}
	if redrive, err = s.desk.Control(ctx, redrive.ID, "start", order.Actor, ""); err != nil {
		return err
	}
	return answerJSON(c, http.StatusAccepted, mediaJSON, redriveOf(redrive))
}

func (b *redriveBody) order() (triage.Order, error) {
	o := triage.Order{Action: b.Action, IDs: b.IDs, Actor: actorOf(false), Reason: b.Reason}
	if o.Action == "" {
		o.Action = dlq.ActionRedrive
	}
	for _, later := range []struct {
		name string
		raw  json.RawMessage
	}{{"rate_per_second", b.RatePerSecond}, {"canary", b.Canary}} {
		if len(later.raw) > 0 && !bytes.Equal(later.raw, []byte("null")) {
			return o, dlq.Invalid(later.name, "can't be set yet; leave it out or null")
		}
	}
	if b.IDs != nil && b.Filter != nil {
		return o, dlq.Invalid("ids", "and filter exclude each other")
	}
	if b.IDs != nil && len(b.IDs) == 0 {
		return o, dlq.Invalid("ids", "is empty")
	}
	var err error
	o.Filter, o.Everything, err = filterOf(b.Filter, time.Now())
	return o, err
}

func (s *Server) getRedrive(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	redrive, err := s.store.RedriveByID(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, mediaJSON, redriveOf(redrive))
}

// redrivesAnswer lists orders, newest first.
type redrivesAnswer struct {
	Redrives []redriveAnswer `json:"redrives"`
	Next     *string         `json:"next"`
}

func (s *Server) getRedrives(c echo.Context) error {
	redrives, next, err := s.listRedrives(c, defaultLimit)
	if err != nil {
		return err
	}
	out := redrivesAnswer{Redrives: []redriveAnswer{}}
	for i := range redrives {
		out.Redrives = append(out.Redrives, redriveOf(&redrives[i]))
	}
	if next != 0 {
		href := "/v1/redrives?before=" + strconv.FormatInt(next, 10)
		out.Next = &href
	}
	return answerJSON(c, http.StatusOK, mediaJSON, out)
}

// listRedrives is a page of orders; next is the id before which the next one is, 0
// on the last.
func (s *Server) listRedrives(c echo.Context, limit int) (redrives []dlq.Redrive, next int64, err error) {
	for name := range c.QueryParams() {
		if name != "before" {
			return nil, 0, dlq.BadRequest(dlq.CleanText(name, 60), "is no parameter of this address")
		}
	}
	var before int64
	if text := c.QueryParam("before"); text != "" {
		if before, err = strconv.ParseInt(text, 10, 64); err != nil || before < 1 {
			return nil, 0, dlq.BadRequest("before", "is not the id of an order")
		}
	}
	redrives, err = s.store.Redrives(c.Request().Context(), before, limit+1)
	if err != nil {
		return nil, 0, err
	}
	if len(redrives) > limit {
		redrives = redrives[:limit]
		next = redrives[limit-1].ID
	}
	return redrives, next, nil
}

// postControl starts, pauses, resumes or cancels an order.
func (s *Server) postControl(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	redrive, err := s.desk.Control(c.Request().Context(), id, c.Param("verb"), actorOf(false), "")
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, mediaJSON, redriveOf(redrive))
}

// postUndo takes the redrive of one letter back.
func (s *Server) postUndo(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	letter, err := s.desk.Undo(c.Request().Context(), id, actorOf(false))
	if err != nil {
		return err
	}
	return answerLetter(c, letter)
}

package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
)

// reportBody is the body of POST /v1/dead-letters.
type reportBody struct {
	WorkKey     string          `json:"work_key"`
	Task        string          `json:"task"`
	Source      string          `json:"source"`
	Error       string          `json:"error"`
	Traceback   string          `json:"traceback"`
	Stage       dlq.Stage       `json:"stage"`
	Class       dlq.Class       `json:"class"`
	Geometry    json.RawMessage `json:"geometry"`
	SrcCRS      string          `json:"src_crs"`
	Tile        *tileBody       `json:"tile"`
	Bounds      bounds          `json:"bounds"`
	Params      json.RawMessage `json:"params"`
	Payload     json.RawMessage `json:"payload"`
	PayloadRef  json.RawMessage `json:"payload_ref"`
	CodeVersion string          `json:"code_version"`
	RunID       string          `json:"run_id"`
	Host        string          `json:"host"`
	HTTPStatus  *int            `json:"http_status"`
	ExitCode    *int            `json:"exit_code"`
	LogURL      string          `json:"log_url"`
	TraceID     string          `json:"trace_id"`
	EventTime   *reportTime     `json:"event_time"`
	Labels      json.RawMessage `json:"labels"`
}

// bounds are four numbers. They are not read where they are far more, of which each would
// take many times its text.
type bounds []*float64

func (b *bounds) UnmarshalJSON(text []byte) error {
	if len(text) > maxBounds || json.Unmarshal(text, (*[]*float64)(b)) != nil {
		return errBounds
	}
	return nil
}

// maxBounds are bytes enough for four numbers, however they are written.
const maxBounds = 4 << 10

var errBounds = dlq.Invalid("bounds", "must be [west, south, east, north]")

type tileBody struct {
	Z *int `json:"z"`
	X *int `json:"x"`
	Y *int `json:"y"`
}

// reportTime is a time of RFC 3339 in the years that both JSON and PostgreSQL can
// write.
type reportTime time.Time

func (t *reportTime) UnmarshalJSON(text []byte) error {
	var parsed time.Time
	if err := json.Unmarshal(text, &parsed); err != nil {
		return errEventTime
	}
	parsed = parsed.UTC()
	if parsed.Year() < 1 || parsed.Year() > 9998 {
		return errEventTime
	}
	*t = reportTime(parsed)
	return nil
}

var errEventTime = dlq.Invalid("event_time", "must be a time as in RFC 3339, such as 2026-01-31T03:00:00Z")

// reportAnswer is the answer to it.
type reportAnswer struct {
	WorkKey   string `json:"work_key"`
	LetterID  *int64 `json:"letter_id"`
	Attempts  *int   `json:"attempts"`
	Spooled   bool   `json:"spooled"`
	Duplicate bool   `json:"duplicate"`
}

// postReport counts a failure of a geotask: 201 for a new letter, 200 for one
// more attempt or a repeated report, 202 for one that waits in the spool.
func (s *Server) postReport(c echo.Context) error {
	h := &hold{budget: s.inFlight}
	defer h.release()
	text, err := readBody(c.Response(), c.Request(), s.config.BodyMax, h)
	if err != nil {
		return err
	}
	var body reportBody
	err = readJSON(text, &body)
	nameSource(c, body.Source) // as far as it was read: who is refused is known by it
	if err != nil {
		return err
	}
	report, err := body.report()
	if err != nil {
		return err
	}
	if err := h.take(s.geometryRoom(len(report.Geometry), h)); err != nil {
		return err
	}
	if report.ReportKey, err = reportKey(c.Request().Header, report.Source); err != nil {
		return err
	}
	receipt, err := s.door.Report(c.Request().Context(), report)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if receipt.Spooled {
		return answerJSON(c, http.StatusAccepted, mediaJSON, reportAnswer{
			WorkKey: receipt.WorkKey, Spooled: true, Duplicate: receipt.Duplicate,
		})
	}
	if receipt.Created {
		status = http.StatusCreated
		c.Response().Header().Set("Location", fmt.Sprintf("/v1/dead-letters/%d", receipt.LetterID))
	}
	return answerJSON(c, status, mediaJSON, reportAnswer{
		WorkKey: receipt.WorkKey, LetterID: &receipt.LetterID, Attempts: &receipt.Attempts, Duplicate: receipt.Duplicate,
	})
}

// geometryCost is how many times its text a geometry takes of memory until it is stored,
// beside the text.
const geometryCost = 3

// geometryRoom is what to take from the budget for a geometry of a report, which is read
// here: as much as there ever is, where it would need more.
func (s *Server) geometryRoom(text int, h *hold) int64 {
	return min(geometryCost*int64(text), s.config.InFlightMax-s.inFlight.reserve-h.taken)
}

func reportKey(h http.Header, source string) (string, error) {
	key, err := oneHeader(h, "Idempotency-Key")
	if err != nil || len(h.Values("Idempotency-Key")) == 0 {
		return "", err
	}
	return dlq.EventKey("Idempotency-Key", source, key)
}

// readJSON reads one JSON object. What is not JSON is a bad request; a member of
// another type than it should be is invalid, by its name.
func readJSON(text []byte, into any) error {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		return dlq.BadRequest("body", "is not UTF-8")
	}
	// Not by a Decoder, which keeps a copy of the whole text.
	err := json.Unmarshal(text, into)
	var typeErr *json.UnmarshalTypeError
	var fieldErr *dlq.FieldError
	switch {
	case errors.As(err, &fieldErr):
		return fieldErr
	case errors.As(err, &typeErr) && typeErr.Field != "":
		return dlq.Invalid(typeErr.Field, "must be %s, not a JSON %s", jsonType(typeErr.Type), typeErr.Value)
	case err != nil && strings.HasSuffix(err.Error(), "after top-level value"):
		return dlq.BadRequest("body", "has text behind its JSON object")
	case err != nil:
		return dlq.BadRequest("body", "is not a JSON object: %s", jsonErrorText(err))
	}
	return nil
}

func jsonErrorText(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("it breaks off or goes wrong at byte %d", syntax.Offset)
	}
	return "it ends too early or holds something else"
}

func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	case reflect.Struct:
		return "an object"
	}
	return "a " + t.Kind().String()
}

// report checks a body and makes it a Report without a place.
func (b *reportBody) report() (*dlq.Report, error) {
	source, err := dlq.CheckSource("source", b.Source)
	if err != nil {
		return nil, err
	}
	if b.WorkKey == "" {
		return nil, dlq.Invalid("work_key", "is missing")
	}
	key, err := dlq.EventKey("work_key", source, b.WorkKey)
	if err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	r := &dlq.Report{
		WorkKey: key, Task: b.Task, Source: source,
		Error: dlq.CleanText(b.Error, dlq.MaxError), Traceback: dlq.CleanText(b.Traceback, dlq.MaxStack),
		Stage: b.Stage, Class: b.Class, HTTPStatus: b.HTTPStatus, ExitCode: b.ExitCode,
		Geometry: b.Geometry, SrcCRS: dlq.CleanText(b.SrcCRS, 1000),
		Params: b.Params, PayloadRef: b.PayloadRef, Labels: b.Labels,
		CodeVersion: dlq.CleanText(b.CodeVersion, 300), RunID: dlq.CleanText(b.RunID, 300), Host: dlq.CleanText(b.Host, 300),
		LogURL: dlq.CleanText(b.LogURL, 2000), TraceID: dlq.CleanText(b.TraceID, 300), EventTime: (*time.Time)(b.EventTime),
	}
	if r.Stage == "" {
		r.Stage = dlq.StageDownstream
	}
	if r.Class == "" {
		r.Class = dlq.ClassUnknown
	}
	for _, v := range b.Bounds {
		r.Bounds = append(r.Bounds, *v)
	}
	if b.Tile != nil {
		r.Tile = &dlq.Tile{Z: *b.Tile.Z, X: *b.Tile.X, Y: *b.Tile.Y}
	}
	if len(b.Payload) > 0 && !isNull(b.Payload) {
		r.Payload, r.MediaType = b.Payload, mediaJSON
	}
	return r, nil
}

func (b *reportBody) check() error {
	switch {
	case b.Task == "":
		return dlq.Invalid("task", "is missing")
	case strings.TrimSpace(b.Error) == "":
		return dlq.Invalid("error", "is missing")
	case b.Stage != "" && !b.Stage.Valid():
		return dlq.Invalid("stage", "%.60q is none of %v", b.Stage, dlq.Stages)
	case !fitsInteger(b.HTTPStatus):
		return dlq.Invalid("http_status", "is not the status of an HTTP answer")
	case b.Class != "" && !b.Class.Valid():
		return dlq.Invalid("class", "%.60q is none of %v", b.Class, dlq.Classes)
	}
	if err := dlq.CheckName("task", b.Task); err != nil {
		return err
	}
	if err := b.checkPlace(); err != nil {
		return err
	}
	for _, object := range []struct {
		name string
		text *json.RawMessage
	}{{"params", &b.Params}, {"labels", &b.Labels}, {"payload_ref", &b.PayloadRef}} {
		if err := checkObject(object.name, object.text); err != nil {
			return err
		}
	}
	return nil
}

// fitsInteger: the column is an integer of 32 bits.
func fitsInteger(v *int) bool { return v == nil || (*v >= math.MinInt32 && *v <= math.MaxInt32) }

func (b *reportBody) checkPlace() error {
	if t := b.Tile; t != nil {
		if t.Z == nil || t.X == nil || t.Y == nil {
			return dlq.Invalid("tile", "needs z, x and y")
		}
		if !(dlq.Tile{Z: *t.Z, X: *t.X, Y: *t.Y}).Valid() {
			return dlq.Invalid("tile", "%d/%d/%d does not exist: z is 0 to %d, x and y 0 to 2^z - 1", *t.Z, *t.X, *t.Y, dlq.MaxTileZoom)
		}
	}
	if b.Bounds == nil {
		return nil
	}
	if len(b.Bounds) != 4 {
		return errBounds
	}
	if slices.Contains(b.Bounds, nil) {
		return dlq.Invalid("bounds", "must be four numbers")
	}
	if *b.Bounds[1] > *b.Bounds[3] {
		return dlq.Invalid("bounds", "south lies north of north")
	}
	return nil
}

// checkObject wants a JSON object that JSONB can hold, or nothing. What JSONB
// refuses of it (escaped NULs, lone surrogates, numbers out of all proportion) is
// replaced: these are words beside the failure, not its payload.
func checkObject(name string, text *json.RawMessage) error {
	if len(*text) == 0 || isNull(*text) {
		*text = nil
		return nil
	}
	if (*text)[0] != '{' {
		return dlq.Invalid(name, "must be an object")
	}
	if len(*text) > maxObject {
		return dlq.Invalid(name, "is larger than %d KiB; what is large belongs into payload", maxObject>>10)
	}
	if nesting(*text) > maxObjectDepth {
		return dlq.Invalid(name, "is nested deeper than %d levels", maxObjectDepth)
	}
	if !bytes.ContainsAny(*text, "\\eE") {
		return nil // nothing in it can be refused: JSONB takes numbers of 131,072 digits
	}
	dec := json.NewDecoder(bytes.NewReader(*text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return dlq.Invalid(name, "must be an object")
	}
	clean, err := json.Marshal(forJSONB(v))
	if err != nil {
		return dlq.Invalid(name, "must be an object")
	}
	*text = clean
	return nil
}

// maxObjectDepth keeps lists readable for clients that nest less deep than we do.
const maxObjectDepth = 64

// maxObject bounds what stands in a letter's row and in every list, in bytes.
const maxObject = 64 << 10

func forJSONB(v any) any {
	switch v := v.(type) {
	case json.Number:
		mantissa, _, _ := strings.Cut(strings.ToLower(string(v)), "e")
		vanished := strings.ContainsAny(mantissa, "123456789")
		if f, err := v.Float64(); err != nil || len(v) > 1000 || (f == 0 && vanished) {
			return string(v)
		}
	case string:
		return strings.ReplaceAll(v, "\x00", "\uFFFD")
	case []any:
		for i := range v {
			v[i] = forJSONB(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, value := range v {
			out[strings.ReplaceAll(k, "\x00", "\uFFFD")] = forJSONB(value)
		}
		return out
	}
	return v
}

func isNull(text json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(text), []byte("null")) }

package web

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
)

// accepted is the answer to one event.
type accepted struct {
	WorkKey   string         `json:"work_key"`
	JobID     *string        `json:"job_id"`
	State     dlq.EventState `json:"state"`
	Spooled   bool           `json:"spooled"`
	Duplicate bool           `json:"duplicate"`
}

// postEvents takes one event, or a batch, and answers once it is durable.
func (s *Server) postEvents(c echo.Context) error {
	h := &hold{budget: s.inFlight}
	defer h.release()
	body, err := readBody(c.Response(), c.Request(), s.config.BodyMax, h)
	if err != nil {
		return err
	}
	sent, err := readEnvelope(c.Request().Header)
	if err != nil {
		return err
	}
	if separator, ok := batchSeparator(sent.mediaType); ok {
		return s.postBatch(c, sent, body, separator, h)
	}
	if err := checkDecodedSize(body, sent.headers["content-encoding"], s.config.BodyMax); err != nil {
		return err
	}
	event, err := sent.event(body)
	if err != nil {
		return err
	}
	receipts, err := s.door.Accept(c.Request().Context(), []dlq.NewEvent{event})
	if err != nil {
		return err
	}
	if receipts[0].Conflict {
		return dlq.ErrDuplicate
	}
	return answerJSON(c, http.StatusAccepted, mediaJSON, acceptedOf(receipts[0]))
}

func acceptedOf(r dlq.Receipt) accepted {
	return accepted{WorkKey: r.WorkKey, JobID: jobID(r.JobID), State: r.State, Spooled: r.Spooled, Duplicate: r.Duplicate}
}

// jobID is null for an event that waits in the spool.
func jobID(id int64) *string {
	if id == 0 {
		return nil
	}
	text := strconv.FormatInt(id, 10)
	return &text
}

// sent is what the header of a request says of its event or batch.
type sent struct {
	key        string // Idempotency-Key, or empty
	source     string
	task       string
	mediaType  string
	claimedCRS string
	headers    map[string]string // what is kept
	binary     *pipeline.CloudEvent
}

// keptHeaders are kept with an event beside the CloudEvents attributes.
var keptHeaders = []string{"Content-Encoding", "Content-Crs", "Idempotency-Key", "Geodlq-Source", "Geodlq-Task", "Traceparent", "User-Agent"}

func readEnvelope(h http.Header) (*sent, error) {
	s := &sent{headers: map[string]string{}}
	var err error
	if s.source, err = oneHeader(h, "Geodlq-Source"); err == nil {
		s.source, err = dlq.CheckSource("Geodlq-Source", s.source)
	}
	if err != nil {
		return nil, err
	}
	if s.task, err = oneHeader(h, "Geodlq-Task"); err == nil {
		err = dlq.CheckName("Geodlq-Task", s.task)
	}
	if err != nil {
		return nil, err
	}
	if s.key, err = oneHeader(h, "Idempotency-Key"); err != nil {
		return nil, err
	}
	if _, given := h["Idempotency-Key"]; given {
		if _, err := dlq.EventKey("Idempotency-Key", s.source, s.key); err != nil {
			return nil, err
		}
	}
	s.mediaType = dlq.CleanText(h.Get("Content-Type"), 300)
	s.claimedCRS = dlq.CleanText(allHeaders(h, "Content-Crs"), 1000)
	for _, name := range keptHeaders {
		if value := allHeaders(h, name); value != "" {
			s.headers[strings.ToLower(name)] = value
		}
	}
	return s, s.readBinary(h)
}

// oneHeader is the value of a header that may stand once.
func oneHeader(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) > 1 {
		return "", dlq.BadRequest(name, "is given %d times; once is enough", len(values))
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}

// allHeaders joins the different values of a header that may be repeated.
func allHeaders(h http.Header, name string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(h.Values(name)))), ", ")
}

// readBinary reads the context of a binary CloudEvent (HTTP protocol binding 1.0
// §3.1). One without id or source has no identity of its own.
func (s *sent) readBinary(h http.Header) error {
	for name, values := range h {
		if strings.HasPrefix(name, "Ce-") && len(s.headers) < 64 {
			s.headers[strings.ToLower(name)] = values[0]
		}
	}
	if h.Get("Ce-Specversion") == "" {
		return nil
	}
	s.binary = &pipeline.CloudEvent{}
	for name, to := range map[string]*string{
		"Ce-Id": &s.binary.ID, "Ce-Source": &s.binary.Source, "Ce-Subject": &s.binary.Subject, "Ce-Sequence": &s.binary.Sequence,
	} {
		value, err := oneHeader(h, name)
		if err != nil {
			return err
		}
		// Binding 1.0 §3.1.3.2: values are percent-encoded.
		if *to, err = url.PathUnescape(value); err != nil {
			*to = value
		}
	}
	if s.binary.ID == "" || s.binary.Source == "" {
		return dlq.BadRequest("ce-id", "a CloudEvent needs ce-id and ce-source")
	}
	return nil
}

// event makes a body an event with its identity: the client's key, else the
// CloudEvent's source and id, else a hash of the content.
func (s *sent) event(body []byte) (dlq.NewEvent, error) {
	e := dlq.NewEvent{
		Source: s.source, Task: s.task, Body: body, MediaType: s.mediaType, Headers: s.headers, ClaimedCRS: s.claimedCRS,
	}
	ce := s.binary
	if ce == nil && isStructured(s.mediaType) && s.headers["content-encoding"] == "" {
		if structured, err := pipeline.StructuredCloudEvent(body); err == nil {
			ce = &structured
		} // one that can't be read becomes a letter at envelope
	}
	if ce != nil {
		e.Subject, e.Version = dlq.CleanText(ce.Subject, 300), dlq.CleanText(ce.Sequence, 300)
	}
	if s.key != "" {
		var err error
		e.WorkKey, err = dlq.EventKey("Idempotency-Key", s.source, s.key)
		return e, err
	}
	if ce != nil {
		var err error
		if e.WorkKey, err = dlq.EventKey("CloudEvent source and id", s.source, ce.Key()); err != nil {
			// Too long for a key, or unprintable.
			e.WorkKey, err = dlq.EventKey("CloudEvent source and id", s.source, ce.HashedKey())
		}
		return e, err
	}
	e.WorkKey, e.Content = dlq.ContentKey(s.source, s.mediaType, s.claimedCRS, body), true
	return e, nil
}

func isStructured(mediaType string) bool {
	base, _, err := mime.ParseMediaType(mediaType)
	return err == nil && base == "application/cloudevents+json"
}

// checkDecodedSize refuses a body that is over the limit once decoded. One that
// does not decode is taken: it becomes a letter.
func checkDecodedSize(body []byte, coding string, limit int64) error {
	if !pipeline.IsGzip(coding) {
		return nil
	}
	if pipeline.GunzipSize(body, limit) > limit {
		return &http.MaxBytesError{Limit: limit}
	}
	return nil
}

// eventStatus is the answer to GET /v1/events/{work_key}.
type eventStatus struct {
	WorkKey    string         `json:"work_key"`
	State      dlq.EventState `json:"state"`
	Attempts   int            `json:"attempts"`
	Tries      int            `json:"tries"`
	LetterID   *int64         `json:"letter_id"`
	Parent     *string        `json:"parent"`
	Children   []string       `json:"children"`
	ReceivedAt time.Time      `json:"received_at"`
	FinishedAt *time.Time     `json:"finished_at"`
}

func (s *Server) getEvent(c echo.Context) error {
	key, err := workKey(c.Request().URL)
	if err != nil {
		return err
	}
	e, err := s.door.EventStatus(c.Request().Context(), key)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, mediaJSON, eventStatus{
		WorkKey: e.WorkKey, State: e.State, Attempts: e.Attempts, Tries: e.Tries, LetterID: e.LetterID,
		Parent: e.Parent, Children: e.Children, ReceivedAt: e.ReceivedAt.UTC(), FinishedAt: utc(e.FinishedAt),
	})
}

// workKey is the last segment of a path, unescaped once. Echo's own parameter
// can't tell %2F from %252F.
func workKey(u *url.URL) (string, error) {
	escaped := u.EscapedPath()
	key, err := url.PathUnescape(escaped[strings.LastIndexByte(escaped, '/')+1:])
	if err != nil || key == "" {
		return "", fmt.Errorf("work key: %w", dlq.ErrNotFound)
	}
	if clean := dlq.CleanText(key, len(key)); clean != key {
		return "", fmt.Errorf("work key: %w", dlq.ErrNotFound)
	}
	return key, nil
}

package web

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
)

// maxBatch bounds the events of one batch.
const maxBatch = 100_000

const recordSeparator = 0x1e

// batchSeparator tells the media types of batches: GeoJSON text sequences (RFC
// 8142), whose records begin with RS, and newline-delimited JSON.
func batchSeparator(mediaType string) (byte, bool) {
	base, _, err := mime.ParseMediaType(mediaType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return 0, false
	}
	switch base {
	case "application/geo+json-seq":
		return recordSeparator, true
	case "application/x-ndjson", "application/ndjson":
		return '\n', true
	}
	return 0, false
}

// batchAnswer is the answer to a batch.
type batchAnswer struct {
	Accepted int            `json:"accepted"`
	Spooled  bool           `json:"spooled"`
	Events   []batchEvent   `json:"events"`
	Rejected []batchProblem `json:"rejected"`
}

type batchEvent struct {
	Index   int     `json:"index"`
	WorkKey string  `json:"work_key"`
	JobID   *string `json:"job_id"`
}

type batchProblem struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// postBatch takes each record as an event of its own. Its key is <batch key>#<i>;
// without a batch key each stands as if it were sent alone.
func (s *Server) postBatch(c echo.Context, batch *sent, body []byte, separator byte, h *hold) error {
	body, err := s.decodeBatch(batch, body, h)
	if err != nil {
		return err
	}
	records := splitRecords(body, separator)
	if len(records) > maxBatch {
		return echo.NewHTTPError(http.StatusRequestEntityTooLarge, "A batch holds at most 100000 events; send it in parts.")
	}
	batch.headers = recordHeaders(batch.headers)
	if err := s.takeRecords(len(records), batch.headers, h); err != nil {
		return err
	}
	answer := batchAnswer{Events: []batchEvent{}, Rejected: []batchProblem{}}
	for first := 0; first < len(records); first += batchPart {
		part := records[first:min(first+batchPart, len(records))]
		if err := s.acceptPart(c.Request().Context(), batch, part, first, &answer); err != nil {
			return err
		}
	}
	answer.Accepted = len(answer.Events)
	return answerJSON(c, http.StatusAccepted, mediaJSON, answer)
}

// batchPart is how many records of a batch are made events, and committed, at once. Where
// a later part fails, the batch is sent again, and the earlier ones are duplicates.
const batchPart = 2000

// acceptPart takes records of a batch, of which the first has an index in it.
func (s *Server) acceptPart(ctx context.Context, batch *sent, records [][]byte, first int, answer *batchAnswer) error {
	events := make([]dlq.NewEvent, len(records))
	for i, record := range records {
		var err error
		if events[i], err = batch.record(record, first+i); err != nil {
			return err
		}
	}
	receipts, err := s.door.Accept(ctx, events)
	if err != nil {
		return err
	}
	for i, r := range receipts {
		answer.Spooled = answer.Spooled || r.Spooled
		if r.Conflict {
			s.refusals.add(batch.source, http.StatusConflict)
			answer.Rejected = append(answer.Rejected, batchProblem{first + i, http.StatusConflict, s.problemOf(dlq.ErrDuplicate).Detail})
			continue
		}
		answer.Events = append(answer.Events, batchEvent{first + i, r.WorkKey, jobID(r.JobID)})
	}
	return nil
}

// decodeBatch undoes a batch's content coding; its records are kept decoded. A
// batch that does not decode has no records to become letters and is refused.
func (s *Server) decodeBatch(batch *sent, body []byte, h *hold) ([]byte, error) {
	coding := batch.headers["content-encoding"]
	delete(batch.headers, "content-encoding")
	switch {
	case coding == "" || strings.EqualFold(coding, "identity"):
		return body, nil
	case !pipeline.IsGzip(coding):
		return nil, echo.NewHTTPError(http.StatusUnsupportedMediaType, "A batch is sent as gzip or without a content coding.")
	}
	size := pipeline.GunzipSize(body, s.config.BodyMax)
	if size > s.config.BodyMax {
		return nil, &http.MaxBytesError{Limit: s.config.BodyMax}
	}
	if err := h.take(size); err != nil {
		return nil, err
	}
	decoded, err := pipeline.Gunzip(body, s.config.BodyMax)
	if err != nil {
		return nil, dlq.BadRequest("body", "is not the gzip that Content-Encoding says")
	}
	return decoded, nil
}

// splitRecords cuts a batch into the exact bytes of its records, without empty
// ones. A sequence without any RS is taken to be delimited by newlines, as many
// producers write it.
func splitRecords(body []byte, separator byte) [][]byte {
	if separator == recordSeparator && bytes.IndexByte(body, recordSeparator) < 0 {
		separator = '\n'
	}
	var records [][]byte
	for record := range bytes.SplitSeq(body, []byte{separator}) {
		record = bytes.TrimSuffix(record, []byte{'\n'})
		record = bytes.TrimSuffix(record, []byte{'\r'})
		if len(bytes.TrimSpace(record)) > 0 {
			records = append(records, record)
		}
	}
	return records
}

// recordHeaders are the headers of a batch that are kept with each of its events: its
// key is not theirs, and none is a binary CloudEvent.
func recordHeaders(headers map[string]string) map[string]string {
	kept := maps.Clone(headers)
	maps.DeleteFunc(kept, func(name, _ string) bool { return name == "idempotency-key" || strings.HasPrefix(name, "ce-") })
	return kept
}

// recordCost is about what an event of a batch takes of memory on its way to the
// database, beside its bytes and its headers.
const recordCost = 512

// takeRecords takes what the events of a batch need beside their bytes from the budget:
// dlq.ErrOverloaded, or 413 where there is never so much.
func (s *Server) takeRecords(records int, headers map[string]string, h *hold) error {
	each := int64(recordCost)
	for name, value := range headers {
		each += int64(len(name) + len(value))
	}
	need := each * int64(records)
	if h.taken+need > s.config.InFlightMax-s.inFlight.reserve {
		return echo.NewHTTPError(http.StatusRequestEntityTooLarge, "So many events, each kept with the headers of the request, are more than this server holds at once; send them in parts.")
	}
	return h.take(need)
}

func (s *sent) record(record []byte, i int) (dlq.NewEvent, error) {
	one := *s
	one.mediaType = mediaGeoJSON
	one.key, one.binary = "", nil
	e, err := one.event(record)
	if err != nil || s.key == "" {
		return e, err
	}
	batchKey, err := dlq.EventKey("Idempotency-Key", s.source, s.key)
	if err != nil {
		return e, err
	}
	e.WorkKey, e.Content = dlq.ChildKey(batchKey, i), false
	return e, nil
}

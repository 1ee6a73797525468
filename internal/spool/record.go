package spool

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"geodlq/internal/dlq"
)

// Record is one thing that was taken: an event or a report.
type Record struct {
	Event  *dlq.NewEvent
	Report *dlq.Report
}

// A line is a record on disk, as a JSON object of exactly this form: one of the heads, the
// record's JSON, the sum. That (CRC-32C, RFC 3720 §12.1) is over the exact bytes of the
// record's JSON.
const (
	eventHead  = `{"event":`
	reportHead = `{"report":`
	sumFormat  = `,"crc32c":"%08x"}`
)

var sumLength = len(fmt.Sprintf(sumFormat, 0))

// eventLine is an event with its body, which NewEvent leaves out.
type eventLine struct {
	dlq.NewEvent
	Body []byte `json:"body"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write appends the record as one line. The body goes through a small buffer: it
// may be large, and many may wait.
func (r *Record) write(w *bufio.Writer) error {
	sum := crc32.New(castagnoli)
	both := io.MultiWriter(w, sum)
	var err error
	if r.Event != nil {
		_, _ = w.WriteString(eventHead)
		err = writeEvent(both, r.Event)
	} else {
		_, _ = w.WriteString(reportHead)
		err = writeJSON(both, r.Report)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, sumFormat+"\n", sum.Sum32())
	return err
}

func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func writeEvent(w io.Writer, e *dlq.NewEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := w.Write(text[:len(text)-1]); err != nil {
		return err
	}
	if _, err := io.WriteString(w, `,"body":"`); err != nil {
		return err
	}
	body := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := body.Write(e.Body); err != nil {
		return err
	}
	if err := body.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w, `"}`)
	return err
}

// size is what the record takes on disk, or a little more.
func (r *Record) size() int64 {
	const around = 1024
	if r.Event != nil {
		return int64(base64.StdEncoding.EncodedLen(len(r.Event.Body))) + around
	}
	return int64(base64.StdEncoding.EncodedLen(len(r.Report.Payload)+len(r.Report.Geometry))+len(r.Report.Params)+len(r.Report.Traceback)) + 2*around
}

var errBadLine = errors.New("bad line")

// parse reads a line back; errBadLine with what is wrong with it. It may be large, and is
// not copied.
func parse(text []byte) (Record, error) {
	raw, isEvent := bytes.CutPrefix(text, []byte(eventHead))
	raw, isReport := bytes.CutPrefix(raw, []byte(reportHead))
	if isEvent == isReport || len(raw) < sumLength {
		return Record{}, fmt.Errorf("%w: neither an event nor a report", errBadLine)
	}
	raw, sum := raw[:len(raw)-sumLength], raw[len(raw)-sumLength:]
	if string(sum) != fmt.Sprintf(sumFormat, crc32.Checksum(raw, castagnoli)) {
		return Record{}, fmt.Errorf("%w: its checksum does not match", errBadLine)
	}
	if isReport {
		report := &dlq.Report{}
		if err := json.Unmarshal(raw, report); err != nil || report.WorkKey == "" {
			return Record{}, fmt.Errorf("%w: not a report", errBadLine)
		}
		return Record{Report: report}, nil
	}
	var e eventLine
	if err := json.Unmarshal(raw, &e); err != nil || e.WorkKey == "" {
		return Record{}, fmt.Errorf("%w: not an event", errBadLine)
	}
	e.NewEvent.Body = e.Body
	return Record{Event: &e.NewEvent}, nil
}

// scan calls each for every whole line behind an offset, with the offset behind the
// line. What follows the last newline is torn: its length is returned.
func scan(r io.Reader, offset int64, each func(text []byte, end int64) error) (torn int, err error) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return len(text), nil
		}
		if err != nil {
			return 0, err
		}
		offset += int64(len(text))
		if err := each(bytes.TrimSuffix(text, []byte{'\n'}), offset); err != nil {
			return 0, err
		}
	}
}

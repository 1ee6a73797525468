package web

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
)

// exportPatience is how long one piece of an export may take to be read.
const exportPatience = time.Minute

// stream prepares an answer of unknown length; it returns a function that is to be
// called between pieces.
func stream(c echo.Context, mediaType, filename string) func() {
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, mediaType)
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", filename))
	c.Response().WriteHeader(http.StatusOK)
	control := http.NewResponseController(c.Response())
	return func() {
		// An export may take longer than a usual answer, as long as it is read.
		_ = control.SetWriteDeadline(time.Now().Add(exportPatience))
	}
}

// cut ends an export that failed half way so that its reader notices: the
// connection breaks off.
func (s *Server) cut(err error) error {
	if err != nil {
		s.logger.Error("export broke off", "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// pieces is after how many letters an export renews its deadline.
const pieces = 500

func (s *Server) exportGeoJSON(c echo.Context) error {
	q, err := readQuery(c)
	if err != nil {
		return err
	}
	letters, err := s.store.Export(c.Request().Context(), q.filter)
	if err != nil {
		return err
	}
	defer letters.Close()
	renew := stream(c, mediaGeoJSON, "letters.geojson")
	w := bufferedWriter(c)
	_, _ = w.WriteString(`{"type":"FeatureCollection","features":[`)
	n := 0
	for ; letters.Next(); n++ {
		if n > 0 {
			_ = w.WriteByte(',')
		}
		if n%pieces == 0 {
			renew()
		}
		text, err := json.Marshal(featureOf(letters.Letter()))
		if err != nil {
			return s.cut(err)
		}
		_ = w.WriteByte('\n')
		if _, err := w.Write(text); err != nil {
			return nil // nobody reads on
		}
	}
	if err := letters.Err(); err != nil {
		return s.cut(err)
	}
	_, _ = fmt.Fprintf(w, "\n],\"numberReturned\":%d}\n", n)
	return w.Flush()
}

var csvHeader = []string{
	"id", "work_key", "kind", "task", "source", "stage", "class", "status", "error", "http_status", "exit_code", "group",
	"tries", "attempts", "redrives", "outcome_unknown", "context_lost", "lon", "lat", "located_by", "src_crs", "tile",
	"media_type", "size", "sha256", "params", "labels", "code_version", "run_id", "host", "trace_id", "log_url",
	"event_time", "first_failed_at", "failed_at", "redriven_at", "resolved_at", "reason",
}

func (s *Server) exportCSV(c echo.Context) error {
	q, err := readQuery(c)
	if err != nil {
		return err
	}
	letters, err := s.store.Export(c.Request().Context(), q.filter)
	if err != nil {
		return err
	}
	defer letters.Close()
	renew := stream(c, "text/csv; charset=utf-8; header=present", "letters.csv")
	w := csv.NewWriter(bufferedWriter(c))
	w.UseCRLF = true // RFC 4180
	_ = w.Write(csvHeader)
	for n := 0; letters.Next(); n++ {
		if n%pieces == 0 {
			renew()
		}
		if err := w.Write(csvRow(letters.Letter())); err != nil {
			return nil // nobody reads on
		}
	}
	if err := letters.Err(); err != nil {
		return s.cut(err)
	}
	w.Flush()
	return nil
}

func csvRow(l *dlq.Letter) []string {
	row := []string{
		strconv.FormatInt(l.ID, 10), l.WorkKey, string(l.Kind), l.Task, l.Source, string(l.Stage), string(l.Class), string(l.Status),
		l.Error, optional(l.HTTPStatus), optional(l.ExitCode), l.Fingerprint,
		strconv.Itoa(l.Tries), strconv.Itoa(l.Attempts), strconv.Itoa(l.Redrives), strconv.FormatBool(l.OutcomeUnknown), strconv.FormatBool(l.ContextLost),
		optional(l.AnchorLon), optional(l.AnchorLat), string(l.LocatedBy), l.SrcCRS, tileText(l.Tile()),
		l.MediaType, strconv.FormatInt(l.Size, 10), l.SHA256, compact(l.Params), compact(l.Labels),
		l.CodeVersion, l.RunID, l.Host, l.TraceID, l.LogURL,
		timeText(l.EventTime), timeText(&l.FirstFailedAt), timeText(&l.FailedAt), timeText(l.RedrivenAt), timeText(l.ResolvedAt), l.Reason,
	}
	for i, cell := range row {
		row[i] = harmless(cell)
	}
	return row
}

// harmless keeps a spreadsheet from taking a cell for a formula. Plain numbers
// stay as they are.
func harmless(cell string) string {
	if cell == "" {
		return cell
	}
	switch cell[0] {
	case '=', '+', '-', '@', '\t', '\r', '\n':
		if _, err := strconv.ParseFloat(cell, 64); err == nil {
			return cell
		}
		return "'" + cell
	}
	return cell
}

func optional[T int | float64](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func tileText(t *dlq.Tile) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d/%d", t.Z, t.X, t.Y)
}

func timeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func compact(object json.RawMessage) string {
	var out bytes.Buffer
	if string(object) == "{}" || json.Compact(&out, object) != nil {
		return ""
	}
	return out.String()
}

func bufferedWriter(c echo.Context) *bufio.Writer { return bufio.NewWriterSize(c.Response(), 64<<10) }

package web

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"github.com/labstack/echo/v4"
)

// encodeJSON writes v without escaping HTML: no answer of ours is HTML, and
// nosniff keeps browsers from taking it for such.
func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// answerJSON writes v whole or not at all.
func answerJSON(c echo.Context, status int, mediaType string, v any) error {
	var out bytes.Buffer
	if err := encodeJSON(&out, v); err != nil {
		return err
	}
	return c.Blob(status, mediaType, out.Bytes())
}

const (
	mediaJSON    = "application/json"
	mediaGeoJSON = "application/geo+json"
)

// utc is a time as RFC 3339 has it, nil for none.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

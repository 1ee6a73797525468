package pipeline

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"strings"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
)

// envelope is an event's body unwrapped: its content coding undone, and the data
// taken out of a structured CloudEvent.
type envelope struct {
	format geo.Format
	doc    []byte
	// offset is where doc begins in the event's body; -1 where doc is no range of
	// it, because the body was encoded.
	offset int
}

// formats maps the media types that can be read.
var formats = map[string]geo.Format{
	"application/geo+json":     geo.GeoJSON,
	"application/json":         geo.GeoJSON,
	"application/vnd.geo+json": geo.GeoJSON, // before RFC 7946
	"text/plain":               geo.WKT,
	"text/wkt":                 geo.WKT,
	"application/wkt":          geo.WKT,
	"application/octet-stream": geo.WKB,
	"application/wkb":          geo.WKB,
}

// mediaStructured is the media type of a structured CloudEvent (CloudEvents HTTP
// protocol binding 1.0 §3.2).
const mediaStructured = "application/cloudevents+json"

func openEnvelope(e *dlq.Event, maxDecoded int64) (envelope, error) {
	body, offset, err := decodeBody(e.Body, e.Headers["content-encoding"], maxDecoded)
	if err != nil {
		return envelope{}, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return envelope{}, failed(dlq.StageEnvelope, dlq.ClassMalformedPayload, "the body is empty")
	}
	mediaType := e.MediaType
	if base, _, err := mime.ParseMediaType(mediaType); err == nil && base == mediaStructured {
		data, err := structuredData(body)
		if err != nil {
			return envelope{}, failed(dlq.StageEnvelope, dlq.ClassMalformedPayload, "CloudEvent: %v", err)
		}
		body, mediaType = data.bytes, data.mediaType
		if offset >= 0 {
			offset = data.offset
		}
	}
	format, err := formatOf(mediaType, body)
	if err != nil {
		return envelope{}, err
	}
	return envelope{format: format, doc: body, offset: offset}, nil
}

// decodeBody undoes the content coding (RFC 9110 §8.4). The offset is 0 where
// the body came as it is, -1 where it was encoded.
func decodeBody(body []byte, coding string, limit int64) ([]byte, int, error) {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			return nil, 0, failed(dlq.StageEnvelope, dlq.ClassMalformedPayload, "gzip bytes without Content-Encoding: gzip")
		}
		return body, 0, nil
	case "gzip", "x-gzip":
		decoded, err := Gunzip(body, limit)
		if err != nil {
			return nil, 0, failed(dlq.StageEnvelope, dlq.ClassMalformedPayload, "Content-Encoding: gzip: %v", err)
		}
		return decoded, -1, nil
	}
	return nil, 0, failed(dlq.StageEnvelope, dlq.ClassUnsupportedFormat, "Content-Encoding %.40q is not supported; send gzip or none", coding)
}

// Gunzip decodes a gzip body of at most limit decoded bytes; dlq.ErrTooLarge
// over it.
func Gunzip(body []byte, limit int64) ([]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	decoded := bytes.NewBuffer(make([]byte, 0, gunzipHint(body, limit)))
	if _, err := decoded.ReadFrom(io.LimitReader(zr, limit+1)); err != nil {
		return nil, err
	}
	if int64(decoded.Len()) > limit {
		return nil, dlq.ErrTooLarge
	}
	return decoded.Bytes(), nil
}

// believed is how many bytes a gzip body decodes to for which its own word is taken.
const believed = 64 << 10

// gunzipHint is how many bytes a gzip body decodes to, so that a large one is not copied
// as it grows: as it says itself (RFC 1952 §2.3.1, ISIZE), or, where that is much, as it
// does.
func gunzipHint(body []byte, limit int64) int64 {
	if len(body) < 4 {
		return 0
	}
	size := int64(binary.LittleEndian.Uint32(body[len(body)-4:]))
	if size > believed {
		size = GunzipSize(body, limit)
	}
	return size + bytes.MinRead
}

func formatOf(mediaType string, body []byte) (geo.Format, error) {
	if mediaType == "" {
		return 0, failed(dlq.StageEnvelope, dlq.ClassUnsupportedFormat, "no Content-Type; send application/geo+json, text/plain (WKT) or application/octet-stream (WKB)")
	}
	base, params, err := mime.ParseMediaType(mediaType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return 0, failed(dlq.StageEnvelope, dlq.ClassUnsupportedFormat, "Content-Type %.80q can't be read", mediaType)
	}
	format, ok := formats[base]
	if !ok {
		return 0, failed(dlq.StageEnvelope, dlq.ClassUnsupportedFormat, "media type %.80q is not supported", base)
	}
	if charset := strings.ToLower(params["charset"]); format != geo.WKB && charset != "" && charset != "utf-8" && charset != "utf8" && !isASCII(body) {
		return 0, failed(dlq.StageEnvelope, dlq.ClassUnsupportedFormat, "charset %.40q is not supported; send UTF-8", charset)
	}
	return format, nil
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// IsGzip reports whether a content coding is gzip.
func IsGzip(coding string) bool {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "gzip", "x-gzip":
		return true
	}
	return false
}

// GunzipSize is how many bytes a gzip body decodes to, as far as it does, at most one
// over limit. It keeps none of them.
func GunzipSize(body []byte, limit int64) int64 {
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return 0
	}
	n, _ := io.Copy(io.Discard, io.LimitReader(zr, limit+1))
	return n
}

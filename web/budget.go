package web

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"geodlq/internal/dlq"
)

// budget bounds the bytes of all bodies in flight.
type budget struct {
	left atomic.Int64
}

func newBudget(bytes int64) *budget {
	b := &budget{}
	b.left.Store(bytes)
	return b
}

func (b *budget) take(n int64) bool {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return false
	}
	return true
}

// hold is what one request has taken of the budget.
type hold struct {
	budget *budget
	taken  int64
}

func (h *hold) take(n int64) error {
	if !h.budget.take(n) {
		return dlq.ErrOverloaded
	}
	h.taken += n
	return nil
}

func (h *hold) release() { h.budget.left.Add(h.taken) }

// chunk is by how much a body of unknown length grows.
const chunk = 64 << 10

// readBody reads a whole body of at most limit bytes into memory taken from the
// budget: *http.MaxBytesError, or dlq.ErrOverloaded.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, h *hold) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	size := r.ContentLength
	if size < 0 {
		size = chunk
	}
	if err := h.take(size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size)
	reader := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(body) == cap(body) {
			if r.ContentLength >= 0 {
				// All is there: one more byte to see the end.
				return body, expectEOF(reader)
			}
			grow := int64(cap(body))
			if err := h.take(grow); err != nil {
				return nil, err
			}
			bigger := make([]byte, len(body), int64(cap(body))+grow)
			copy(bigger, body)
			body = bigger
		}
		n, err := reader.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
	}
}

func expectEOF(r io.Reader) error {
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil && !errors.Is(err, io.EOF) {
		return bodyError(err)
	}
	return nil
}

// bodyError keeps what has a status of its own; a body that was cut off in
// transit is the client's to send again.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	return dlq.BadRequest("body", "ended before its end")
}

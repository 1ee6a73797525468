package web

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"geodlq/internal/dlq"
)

// budget bounds the bytes of all bodies in flight. An eighth of it is kept for
// small ones, so that large uploads don't shut the door to all others.
type budget struct {
	left    atomic.Int64
	reserve int64
}

func newBudget(bytes int64) *budget {
	b := &budget{reserve: bytes / 8}
	b.left.Store(bytes)
	return b
}

func (b *budget) take(n int64, small bool) bool {
	floor := b.reserve
	if small {
		floor = 0
	}
	if b.left.Add(-n) < floor {
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
	if !h.budget.take(n, h.taken+n <= chunk) {
		return dlq.ErrOverloaded
	}
	h.taken += n
	return nil
}

func (h *hold) release() { h.budget.left.Add(h.taken) }

// A body of unknown length takes first of memory, which doubles as it comes in, and beyond
// first of the budget: thousands that do not come hold nothing of it. Up to chunk it is a
// small one.
const (
	first = 4 << 10
	chunk = 64 << 10
)

// readBody reads a whole body of at most limit bytes into memory taken from the
// budget: *http.MaxBytesError, or dlq.ErrOverloaded.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, h *hold) ([]byte, error) {
	if r.ContentLength > limit {
		drain(w, r)
		return nil, &http.MaxBytesError{Limit: limit}
	}
	var body []byte
	reader := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(body) == cap(body) {
			grow := max(int64(cap(body)), first)
			if r.ContentLength >= 0 {
				// One byte more than is left, to see the end.
				grow = min(grow, r.ContentLength-int64(len(body))+1)
			}
			if len(body) > 0 {
				if err := h.take(grow); err != nil {
					drain(w, r)
					return nil, err
				}
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

// drainTime and drainMax bound what is read of a body that is refused: a client
// that still sends would not see the answer.
const (
	drainTime = 5 * time.Second
	drainMax  = 64 << 20
)

func drain(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainMax)
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

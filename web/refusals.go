package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
)

// otherSources takes what is refused once too many sources wait to be written; no
// source may hold a colon.
const otherSources = ":others"

// maxRefusals bounds the counts that wait to be written: who names a new source
// with every request fills no more.
const maxRefusals = 4096

// refusals counts what the door answers with an error until it is written to the
// ledger.
type refusals struct {
	mu     sync.Mutex
	counts map[refusalKey]int64
}

type refusalKey struct {
	day    time.Time
	source string
	status int
}

func newRefusals() *refusals { return &refusals{counts: map[refusalKey]int64{}} }

func (r *refusals) add(source string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(refusalKey{dlq.Today(time.Now()), source, status}, 1)
}

func (r *refusals) put(key refusalKey, n int64) {
	if _, known := r.counts[key]; !known {
		if len(r.counts) >= maxRefusals {
			key.source = otherSources
		}
		// A header's text holds on to the whole header.
		key.source = strings.Clone(key.source)
	}
	r.counts[key] += n
}

// take empties the counts.
func (r *refusals) take() []dlq.LedgerRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]dlq.LedgerRefusal, 0, len(r.counts))
	for key, n := range r.counts {
		out = append(out, dlq.LedgerRefusal{Day: key.day, Source: key.source, Status: key.status, Count: n})
	}
	clear(r.counts)
	return out
}

// putBack is for what could not be written.
func (r *refusals) putBack(refused []dlq.LedgerRefusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range refused {
		r.put(refusalKey{one.Day, one.Source, one.Status}, one.Count)
	}
}

// sourceParam is where a request's source is kept for countRefusal.
const sourceParam = "geodlq.source"

// nameSource notes the source that a request names, if it may be one.
func nameSource(c echo.Context, source string) {
	if source, err := dlq.CheckSource("source", source); err == nil {
		c.Set(sourceParam, source)
	}
}

// doors are the routes whose errors are refusals, which the ledger counts.
var doors = map[string]bool{"/v1/events": true, "/v1/dead-letters": true}

// countRefusal counts the errors that the door answers with, whoever they come
// from: also those of our own making, since the client's event was not taken.
func (s *Server) countRefusal(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method != http.MethodPost || !doors[c.Path()] {
			return next(c)
		}
		nameSource(c, "")
		nameSource(c, c.Request().Header.Get("Geodlq-Source"))
		err := next(c)
		if err == nil || errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
			return err
		}
		source, _ := c.Get(sourceParam).(string)
		s.refusals.add(source, s.problemOf(err).Status)
		return err
	}
}

// Refusals are written every refusalsEvery, each time in at most refusalsTimeout;
// at the end once more.
const (
	refusalsEvery   = time.Second
	refusalsTimeout = 5 * time.Second
)

// writeRefusals writes what was refused to the ledger from time to time. It returns
// how to stop, which writes the rest.
func (s *Server) writeRefusals(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(refusalsEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				s.flushRefusals(context.WithoutCancel(ctx))
				return
			case <-tick.C:
				s.flushRefusals(ctx)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// flushRefusals writes what waits; while the database is away it goes on waiting.
func (s *Server) flushRefusals(ctx context.Context) {
	refused := s.refusals.take()
	if len(refused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refusalsTimeout)
	defer cancel()
	if err := s.store.AddRefusals(ctx, refused); err != nil {
		s.refusals.putBack(refused)
		if s.mayComplain(http.StatusServiceUnavailable) {
			s.logger.Warn("refusals wait to be written to the ledger", "error", err)
		}
	}
}

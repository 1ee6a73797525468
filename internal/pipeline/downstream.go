package pipeline

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"geodlq/internal/dlq"
)

// DeliveryError is how a sink says that it did not take a feature.
type DeliveryError struct {
	Class      dlq.Class
	Text       string
	Status     int // of HTTP; 0: none
	Transient  bool
	Unknown    bool // no answer came: it may have been taken
	RetryAfter time.Duration
}

func (e *DeliveryError) Error() string { return e.Text }

func (r *run) deliver(ctx context.Context) error {
	err := r.Sink.Deliver(ctx, &Delivery{
		Event: r.event, Tries: r.tries, ID: r.doc.ID, Properties: r.doc.Properties,
		Geometry: r.placed.geometry, WKB: r.placed.wkb,
	})
	if err == nil || errors.Is(err, dlq.ErrSuperseded) {
		return err
	}
	var d *DeliveryError
	if !errors.As(err, &d) {
		return databaseFailure(dlq.StageDownstream, err)
	}
	f := failed(dlq.StageDownstream, d.Class, "%s", d.Text)
	f.transient, f.unknown, f.retryAfter = d.Transient, d.Unknown, d.RetryAfter
	if d.Status != 0 {
		f.status = &d.Status
	}
	return f
}

// What a sink's own words tell of a failure, whatever its status.
var (
	saysOutOfMemory = regexp.MustCompile(`(?i)out of memory|\boom\b|oom-?kill|cannot allocate|memoryerror|exit (code|status) 137`)
	saysInvalid     = regexp.MustCompile(`(?i)topologyexception|self-intersection|invalid geometry|geometry is (not valid|invalid)`)
)

// classOfAnswer is the class of an HTTP answer that is not a success.
func classOfAnswer(status int, text string) dlq.Class {
	switch {
	case saysOutOfMemory.MatchString(text):
		return dlq.ClassOOM
	case saysInvalid.MatchString(text):
		return dlq.ClassInvalidGeometry
	case status == 504:
		return dlq.ClassUpstreamTimeout
	}
	return dlq.ClassUpstreamError
}

// answerFailed is the DeliveryError of an HTTP answer: 429 and 5xx are transient,
// all else is final.
func answerFailed(status int, text string, retryAfter time.Duration) *DeliveryError {
	message := fmt.Sprintf("the sink answered %d", status)
	if text != "" {
		message += ": " + text
	}
	return &DeliveryError{
		Class: classOfAnswer(status, text), Text: message, Status: status,
		Transient: status == 429 || status >= 500, RetryAfter: retryAfter,
	}
}

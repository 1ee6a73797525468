// Package pipeline takes an event through its five stages, a file each: envelope,
// parse, validate, crs and downstream. It is pure but for what it is given:
// PostGIS for topology and reprojection, and a sink.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/paulmach/orb"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
	"geodlq/internal/store"
)

// PostGIS is what the pipeline asks of the database; see the methods of
// store.Store.
type PostGIS interface {
	CheckTopology(ctx context.Context, wkb []byte) (*store.Flaw, error)
	Transform(ctx context.Context, wkb []byte, srid int) (there, back []byte, err error)
	WrapLongitude(ctx context.Context, wkb []byte) ([]byte, error)
}

// Delivery is a normalised feature on its way to the sink.
type Delivery struct {
	Event      *dlq.Event
	Tries      int          // executions of this run, this one included
	ID         []byte       // the feature's id as sent: JSON, or nil
	Properties []byte       // as sent: JSON, or nil
	Geometry   orb.Geometry // EPSG:4326, x = longitude; nil for a null or empty one
	WKB        []byte       // of Geometry
}

// Sink takes features, once per work key, and marks their events processed. Its
// error is a *DeliveryError, or wraps dlq.ErrSuperseded where the event was ended
// by another job meanwhile.
type Sink interface {
	Deliver(ctx context.Context, d *Delivery) error
}

// Pipeline runs events. It keeps no state and may be shared.
type Pipeline struct {
	PostGIS PostGIS
	Sink    Sink
	// CheckTimeout bounds a topology check by our own clock: an interrupted check
	// comes back as a GEOS exception, which would call a good polygon invalid.
	CheckTimeout time.Duration
	// MaxDecoded bounds a body after its content coding is undone, in bytes.
	MaxDecoded int64
}

// Outcome is how a run ended. The zero Outcome: the sink has taken the feature.
type Outcome struct {
	// Split: a collection, to be replaced by Children, which inherit its CRS claims.
	Split        bool
	Children     []store.Child
	InheritedCRS []string

	// Failure is why the run failed. Transient: another try may pass, not before
	// RetryAfter where the sink said so.
	Failure    *dlq.Failure
	Transient  bool
	RetryAfter time.Duration

	// Superseded: another job ended the event meanwhile; nothing was written.
	Superseded bool
}

// A failure is an error of a stage on its way to becoming a dlq.Failure.
type failure struct {
	stage      dlq.Stage
	class      dlq.Class
	text       string
	stack      string
	status     *int
	transient  bool
	unknown    bool // the sink may have taken it
	retryAfter time.Duration
	flawAt     *[2]float64 // in the CRS of the geometry
}

func (f *failure) Error() string { return string(f.stage) + ": " + f.text }

func failed(stage dlq.Stage, class dlq.Class, format string, args ...any) *failure {
	return &failure{stage: stage, class: class, text: fmt.Sprintf(format, args...)}
}

// run is the state of one event on its way.
type run struct {
	*Pipeline
	event    *dlq.Event
	tries    int
	stage    dlq.Stage // where it is now, for what panics
	envelope envelope
	doc      *geo.Document
	claim    claim
	placed   *placed
}

// Run takes an event through all stages. ctx ends it: the outcome is then
// transient, and the caller knows by ctx why. tries counts this run.
//
// It runs in a goroutine of its own, since one that is ended (runtime.Goexit) takes
// everything above along, and the job would never be reported.
func (p *Pipeline) Run(ctx context.Context, e *dlq.Event, tries int) Outcome {
	r := &run{Pipeline: p, event: e, tries: tries, stage: dlq.StageEnvelope}
	ended := make(chan Outcome, 1)
	go func() {
		returned := false
		defer func() {
			if v := recover(); v != nil {
				ended <- r.broken("panic: %v", v)
			} else if !returned {
				ended <- r.broken("its goroutine was ended before it was done")
			}
		}()
		out := r.outcome(ctx)
		returned = true
		ended <- out
	}()
	return <-ended
}

// broken is the outcome of a run that did not return.
func (r *run) broken(format string, args ...any) Outcome {
	f := failed(r.stage, dlq.ClassUnknown, format, args...)
	f.stack = string(debug.Stack())
	f.unknown = r.stage == dlq.StageDownstream
	return Outcome{Failure: r.describe(f)}
}

func (r *run) outcome(ctx context.Context) Outcome {
	split, err := r.stages(ctx)
	var f *failure
	switch {
	case split != nil:
		return *split
	case err == nil:
		return Outcome{}
	case errors.Is(err, dlq.ErrSuperseded):
		return Outcome{Superseded: true}
	case !errors.As(err, &f):
		f = failed(r.stage, dlq.ClassUnknown, "%v", err)
		f.transient = true
	}
	r.locate(ctx, f)
	return Outcome{Failure: r.describe(f), Transient: f.transient, RetryAfter: f.retryAfter}
}

// stages returns an Outcome for a collection, nil for a delivered feature.
func (r *run) stages(ctx context.Context) (*Outcome, error) {
	var err error
	if r.envelope, err = openEnvelope(r.event, r.MaxDecoded); err != nil {
		return nil, err
	}
	r.stage = dlq.StageParse
	if r.doc, err = parse(r.envelope); err != nil {
		return nil, err
	}
	if r.doc.Collection && !r.event.Child() {
		return r.split(), nil
	}
	if r.event.Child() && !r.doc.Feature {
		return nil, failed(dlq.StageParse, dlq.ClassInvalidGeometry, "a collection's features must be Features (RFC 7946 §3.3)")
	}
	r.claim = resolveClaims(r.event, r.doc)
	if r.claim.swap && r.doc.Geometry != nil {
		r.doc.Geometry = geo.SwapAxes(r.doc.Geometry)
	}
	r.stage = dlq.StageValidate
	if err := r.validate(ctx); err != nil {
		return nil, err
	}
	r.stage = dlq.StageCRS
	if r.placed, err = r.place(ctx); err != nil {
		return nil, err
	}
	r.stage = dlq.StageDownstream
	return nil, r.deliver(ctx)
}

// locate gives a failure past parse its place, where its CRS allows: an invalid
// polygon in UTM is drawn where it lies.
func (r *run) locate(ctx context.Context, f *failure) {
	if r.placed != nil || f.stage != dlq.StageValidate || r.doc == nil || r.doc.Geometry == nil {
		return
	}
	placed, err := r.place(ctx)
	if err != nil {
		return
	}
	r.placed = placed
	if f.flawAt == nil {
		return
	}
	if at, err := r.reproject(ctx, orb.Point(*f.flawAt)); err == nil {
		point := [2]float64(at.(orb.Point))
		placed.flawAt = &point
	}
}

// describe makes a failure what the letter keeps of it.
func (r *run) describe(f *failure) *dlq.Failure {
	text := dlq.CleanText(f.text, dlq.MaxError)
	out := &dlq.Failure{
		Stage: f.stage, Class: f.class, Error: text, Stack: dlq.CleanText(f.stack, dlq.MaxStack),
		HTTPStatus: f.status, Fingerprint: dlq.Fingerprint(f.stage, f.class, r.event.Task, text),
		Tries: r.tries, OutcomeUnknown: f.unknown, SrcCRS: dlq.CleanText(r.claimed(), 300),
	}
	if r.placed != nil && r.placed.geometry != nil {
		out.WKB = r.placed.wkb
		if anchor, ok := geo.Anchor(r.placed.geometry); ok {
			out.Anchor = &[2]float64{anchor.X(), anchor.Y()}
		}
		out.InvalidAt = r.placed.flawAt
	}
	return out
}

// claimed is the CRS that the source claimed, as it wrote it.
func (r *run) claimed() string {
	for _, claim := range claimTexts(r.event, r.doc) {
		return claim
	}
	return ""
}

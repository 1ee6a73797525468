package pipeline

import (
	"context"
	"errors"

	"github.com/paulmach/orb"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
	"geodlq/internal/store"
)

// validate refuses what is readable but no legal geometry: rings that the parser
// found wanting, and topology that PostGIS does (OGC 06-103r4 §6.1.11).
func (r *run) validate(ctx context.Context) error {
	if flaw := r.doc.Flaw; flaw != nil {
		return failed(dlq.StageValidate, flaw.Class, "%s", flaw.Error())
	}
	if r.doc.Geometry == nil || isPoint(r.doc.Geometry) {
		return nil
	}
	wkb, err := geo.EncodeWKB(r.doc.Geometry)
	if err != nil {
		return failed(dlq.StageValidate, dlq.ClassInvalidGeometry, "%v", err)
	}
	checkCtx, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	flaw, err := r.PostGIS.CheckTopology(checkCtx, wkb)
	switch {
	case checkCtx.Err() != nil:
		f := failed(dlq.StageValidate, dlq.ClassUnknown, "the topology check took longer than %s", r.CheckTimeout)
		f.transient = true
		return f
	case errors.Is(err, store.ErrGeometry):
		return failed(dlq.StageValidate, dlq.ClassInvalidGeometry, "%v", err)
	case err != nil:
		return databaseFailure(dlq.StageValidate, err)
	case flaw != nil:
		f := failed(dlq.StageValidate, dlq.ClassInvalidGeometry, "%s", flaw.Reason)
		if flaw.At != nil {
			f.text = flaw.Reason + " at " + ordinates(flaw.At[0], flaw.At[1])
			f.flawAt = flaw.At
		}
		return f
	}
	return nil
}

// isPoint tells what has no topology to check.
func isPoint(g orb.Geometry) bool {
	switch g.(type) {
	case orb.Point, orb.MultiPoint:
		return true
	}
	return false
}

// databaseFailure is transient: it says nothing of the event. What the driver says
// stays inside but for the code.
func databaseFailure(stage dlq.Stage, err error) *failure {
	f := failed(stage, dlq.ClassUnknown, "the database failed%s", store.CodeOf(err))
	f.transient = true
	return f
}

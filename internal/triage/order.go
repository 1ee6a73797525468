package triage

import (
	"context"
	"strings"

	"geodlq/internal/dlq"
	"geodlq/internal/store"
)

// Order is an action over a set of letters: those of a filter, or those named.
type Order struct {
	Action     dlq.Action
	Filter     dlq.Filter
	Everything bool    // all open letters are really meant
	IDs        []int64 // not empty: these, whatever the filter
	Actor      string
	Reason     string
}

// maxTicked bounds the letters that are named one by one.
const maxTicked = 10_000

// Preview freezes the set of an order and says what would happen; Start begins
// it. dlq.ErrInvalid for an empty filter: all that is open must be asked for by
// that name.
func (d *Desk) Preview(ctx context.Context, o Order) (*dlq.Redrive, error) {
	o.Reason = strings.TrimSpace(o.Reason)
	switch {
	case !o.Action.Valid():
		return nil, dlq.Invalid("action", "%.40q is none of %v", string(o.Action), dlq.Actions)
	case o.Action == dlq.ActionAbandon && o.Reason == "":
		return nil, dlq.Invalid("reason", "is needed to abandon letters")
	case len(o.IDs) > maxTicked:
		return nil, dlq.Invalid("ids", "are more than %d; use a filter", maxTicked)
	case len(o.IDs) == 0 && len(o.Filter.Values()) == 0 && !o.Everything:
		return nil, dlq.Invalid("filter", "is empty, which would be every open letter; narrow it down, or say everything")
	}
	n := store.NewRedrive{Action: o.Action, Filter: o.Filter, Actor: o.Actor, Reason: o.Reason}
	if len(o.IDs) > 0 {
		n.Filter, n.IDs = dlq.Filter{}, o.IDs
	}
	return d.store.PreviewRedrive(ctx, n)
}

// Control moves an order: start, pause, resume or cancel; reason is kept with one
// that starts, actor with the letters that one takes back. dlq.ErrConflict where its state forbids that.
func (d *Desk) Control(ctx context.Context, id int64, verb, actor, reason string) (*dlq.Redrive, error) {
	var err error
	switch verb {
	case "start":
		err = d.store.StartRedrive(ctx, id, strings.TrimSpace(reason))
	case "pause":
		err = d.store.PauseRedrive(ctx, id)
	case "resume":
		err = d.store.ResumeRedrive(ctx, id)
	case "cancel":
		err = d.store.CancelRedrive(ctx, id, actor)
	default:
		err = dlq.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return d.store.RedriveByID(ctx, id)
}

// Undo takes the redrive of one letter back before it runs.
func (d *Desk) Undo(ctx context.Context, id int64, actor string) (*dlq.Letter, error) {
	if err := d.store.Undo(ctx, id, actor); err != nil {
		return nil, err
	}
	return d.store.Letter(ctx, id)
}

// Package triage is what operators do to letters.
package triage

import (
	"context"
	"fmt"
	"strings"

	"geodlq/internal/dlq"
	"geodlq/internal/store"
)

// Desk is where letters are triaged.
type Desk struct{ store *store.Store }

// New returns a Desk over a store.
func New(s *store.Store) *Desk { return &Desk{s} }

// Act does an action to one letter and returns it as it stands then. Errors:
// dlq.ErrNotFound; dlq.ErrConflict, which says who was first; dlq.ErrInvalid.
func (d *Desk) Act(ctx context.Context, id int64, action dlq.Action, actor, reason string) (*dlq.Letter, error) {
	reason = strings.TrimSpace(reason)
	if action == dlq.ActionAbandon && reason == "" {
		return nil, dlq.Invalid("reason", "is needed to abandon a letter")
	}
	var err error
	if action == dlq.ActionRedrive {
		err = d.redrive(ctx, id, actor, reason)
	} else {
		err = d.store.Transition(ctx, id, action, actor, reason)
	}
	if err != nil {
		return nil, err
	}
	return d.store.Letter(ctx, id)
}

// redrive orders one letter to run again, at the same work key and on the same
// bytes.
func (d *Desk) redrive(ctx context.Context, id int64, actor, reason string) error {
	claimed, err := d.store.Redrive(ctx, []int64{id}, actor, reason)
	if err != nil {
		return err
	}
	if len(claimed) == 0 {
		return fmt.Errorf("redrive letter %d: %w", id, d.store.WhyNot(ctx, id, dlq.ActionRedrive))
	}
	return nil
}

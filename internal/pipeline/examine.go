package pipeline

import (
	"context"

	"geodlq/internal/dlq"
)

// Examine runs the stages up to the sink, without it: what a letter whose context
// was lost can still learn from its bytes. The failure is of stage downstream where
// they pass, with the place alone; nil where nothing could be told now.
func (p *Pipeline) Examine(ctx context.Context, e *dlq.Event) *dlq.Failure {
	dry := *p
	dry.Sink = noSink{}
	out := dry.Run(ctx, e, 1)
	switch {
	case out.Split:
		return &dlq.Failure{Stage: dlq.StageDownstream, Class: dlq.ClassUnknown}
	case out.Failure == nil, out.Transient, ctx.Err() != nil:
		return nil
	}
	return out.Failure
}

// noSink takes nothing.
type noSink struct{}

func (noSink) Deliver(context.Context, *Delivery) error {
	return &DeliveryError{Class: dlq.ClassUnknown, Text: "not delivered"}
}

package pipeline

import (
	"errors"

	"geodlq/internal/dlq"
	"geodlq/internal/geo"
	"geodlq/internal/store"
)

func parse(env envelope) (*geo.Document, error) {
	doc, err := geo.Parse(env.format, env.doc)
	if err == nil {
		return doc, nil
	}
	var flaw *geo.Error
	if errors.As(err, &flaw) {
		return nil, failed(flaw.Stage, flaw.Class, "%s", flaw.Error())
	}
	return nil, failed(dlq.StageParse, dlq.ClassUnknown, "%v", err)
}

// split makes a collection's features units of their own. They share its body by
// their byte ranges, unless that was encoded.
func (r *run) split() *Outcome {
	out := &Outcome{Split: true, InheritedCRS: r.doc.Claims}
	for _, span := range r.doc.Features {
		child := store.Child{Body: r.envelope.doc[span.Start:span.End], Encoded: r.envelope.offset < 0}
		if !child.Encoded {
			child.Start, child.End = r.envelope.offset+span.Start, r.envelope.offset+span.End
		}
		out.Children = append(out.Children, child)
	}
	return out
}

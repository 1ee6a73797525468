package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"geodlq/internal/dlq"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
)

// examineEvery is how often letters whose context was lost are looked for.
const examineEvery = 5 * time.Second

// examineBatch bounds one look.
const examineBatch = 100

type examineArgs struct{}

func (examineArgs) Kind() string { return "examine" }

// addExaminer gives letters their context back: the stages are run again on the
// stored bytes, without the sink.
func addExaminer(workers *river.Workers, s *store.Store, p *pipeline.Pipeline) {
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[examineArgs]) error {
		lost, err := s.LostLetters(ctx, examineBatch)
		if err != nil {
			return err
		}
		var failures []error // one that can't be read does not keep the others waiting
		for _, letter := range lost {
			failures = append(failures, examine(ctx, s, p, letter))
		}
		return errors.Join(failures...)
	}))
}

func examine(ctx context.Context, s *store.Store, p *pipeline.Pipeline, letter store.LostLetter) error {
	nothing := &dlq.Failure{Stage: dlq.StageDownstream, Class: dlq.ClassUnknown}
	event, err := s.Event(ctx, letter.EventID)
	if errors.Is(err, dlq.ErrNotFound) {
		return s.FillContext(ctx, letter.ID, nothing)
	}
	if err != nil {
		return err
	}
	lost, err := readBytes(ctx, s, event)
	if err != nil {
		return err
	}
	if lost != nil {
		return s.FillContext(ctx, letter.ID, lostBytes(event, lost, 1))
	}
	failure := p.Examine(ctx, event)
	if failure == nil {
		return nil // not now
	}
	return s.FillContext(ctx, letter.ID, failure)
}

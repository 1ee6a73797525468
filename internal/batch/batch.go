// Package batch lets callers share a round trip, or a commit: what they hand over
// while one batch runs makes the next. A caller that is alone waits for nobody.
//
// What is wrong with one item stays its own affair: a batch that fails is taken apart
// until the culprits stand alone, and the error that each gets is the one it would
// have got by itself.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Options of a Batcher.
type Options[In any] struct {
	Max     int           // items of a batch
	Runners int           // batches at once
	Timeout time.Duration // of a batch of several; then each item is run by itself
	// Linger is how long the next batch is let grow while there is a crowd: fewer round
	// trips for a little patience. It is no use where callers wait for the answer.
	Linger time.Duration
	// Weigh and MaxWeight bound a batch further; nil: no weight.
	Weigh     func(In) int
	MaxWeight int
	// Split tells the errors that may be the fault of one item. After any other, each
	// item is run by itself once.
	Split func(error) bool
}

// Batcher runs items in batches.
type Batcher[In, Out any] struct {
	run     func(ctx context.Context, items []In) ([]Out, error)
	options Options[In]

	mu      sync.Mutex
	queue   []*item[In, Out]
	running int
}

type item[In, Out any] struct {
	ctx  context.Context
	in   In
	out  Out
	err  error
	done chan struct{}
}

// errAlone: the batch could not tell; the item is to be run by itself.
var errAlone = errors.New("to be run alone")

// New returns a Batcher over run, which gives an output for each item, in their
// order, or fails as a whole. It must be safe to run an item again after a failure.
func New[In, Out any](run func(ctx context.Context, items []In) ([]Out, error), o Options[In]) *Batcher[In, Out] {
	return &Batcher[In, Out]{run: run, options: o}
}

// Do runs an item, most likely together with others, and returns its output. When ctx
// ends it returns at once, and the item may have been run or not.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	it := &item[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	b.enqueue(it)
	select {
	case <-it.done:
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
	if it.err == errAlone {
		return b.Alone(ctx, in)
	}
	return it.out, it.err
}

// Alone runs an item without others, under its own context.
func (b *Batcher[In, Out]) Alone(ctx context.Context, in In) (Out, error) {
	out, err := b.run(ctx, []In{in})
	if err != nil {
		var none Out
		return none, err
	}
	return out[0], nil
}

func (b *Batcher[In, Out]) enqueue(it *item[In, Out]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, it)
	if b.running < b.options.Runners {
		b.running++
		go b.drain()
	}
}

// drain runs what is queued until nothing is.
func (b *Batcher[In, Out]) drain() {
	for crowd := false; ; {
		if crowd && b.options.Linger > 0 {
			time.Sleep(b.options.Linger)
		}
		items := b.take()
		if items == nil {
			return
		}
		crowd = len(items) > 1
		b.settle(items)
		for _, it := range items {
			close(it.done)
		}
	}
}

// take cuts the next batch off the queue; nil where there is none, and the runner is
// to end.
func (b *Batcher[In, Out]) take() []*item[In, Out] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var items []*item[In, Out]
	weight, n := 0, 0
	for ; n < len(b.queue) && len(items) < b.options.Max; n++ {
		it := b.queue[n]
		if it.ctx.Err() != nil {
			continue // its caller is gone
		}
		if b.options.Weigh != nil {
			if weight += b.options.Weigh(it.in); weight > b.options.MaxWeight && len(items) > 0 {
				break
			}
		}
		items = append(items, it)
	}
	b.queue = b.queue[n:]
	if len(b.queue) == 0 {
		b.queue = nil // lets go of what was run
	}
	if items == nil {
		b.running--
	}
	return items
}

// settle gives each item its output or its error. What panics is left to the callers,
// whose own it then is.
func (b *Batcher[In, Out]) settle(items []*item[In, Out]) {
	defer func() {
		if recover() != nil {
			leave(items)
		}
	}()
	if len(items) == 1 {
		items[0].out, items[0].err = b.Alone(items[0].ctx, items[0].in)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
	defer cancel()
	b.runSet(ctx, items)
}

// leave leaves items to their callers.
func leave[In, Out any](items []*item[In, Out]) {
	for _, it := range items {
		it.err = errAlone
	}
}

// runSet runs items together, or, where one may have failed the others, its halves.
func (b *Batcher[In, Out]) runSet(ctx context.Context, items []*item[In, Out]) {
	in := make([]In, len(items))
	for i, it := range items {
		in[i] = it.in
	}
	out, err := b.run(ctx, in)
	switch {
	case err == nil:
		for i, it := range items {
			it.out = out[i]
		}
	case ctx.Err() != nil || !b.options.Split(err):
		leave(items)
	case len(items) == 1:
		items[0].err = err
	default:
		b.runSet(ctx, items[:len(items)/2])
		b.runSet(ctx, items[len(items)/2:])
	}
}

package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errPoison = errors.New("poison")

// doubler doubles numbers; a negative one fails its whole batch, by name.
func doubler(calls *atomic.Int64) func(context.Context, []int) ([]int, error) {
	return func(_ context.Context, items []int) ([]int, error) {
		calls.Add(1)
		out := make([]int, len(items))
		for i, n := range items {
			if n < 0 {
				return nil, fmt.Errorf("%w: %d", errPoison, n)
			}
			out[i] = 2 * n
		}
		return out, nil
	}
}

func splits(err error) bool { return errors.Is(err, errPoison) }

func TestPoisonTouchesItsOwnItemAlone(t *testing.T) {
	for _, bad := range []int{0, 1, 5, 25} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			run := doubler(&calls)
			gate := make(chan struct{})
			b := New(func(ctx context.Context, items []int) ([]int, error) {
				<-gate
				return run(ctx, items)
			}, Options[int]{Max: 500, Runners: 1, Timeout: time.Minute, Split: splits})
			go func() { _, _ = b.Do(t.Context(), 0) }() // holds the runner while the others queue
			synctest.Wait()
			var done sync.WaitGroup
			for n := 1; n <= 500; n++ {
				done.Go(func() {
					in := n
					if n%20 == 0 && n/20 <= bad {
						in = -n
					}
					out, err := b.Do(t.Context(), in)
					if in > 0 && (err != nil || out != 2*n) {
						t.Errorf("%d: %d, %v", in, out, err)
					}
					if in < 0 && (err == nil || err.Error() != fmt.Sprintf("poison: %d", in)) {
						t.Errorf("%d: %d, %v", in, out, err)
					}
				})
			}
			synctest.Wait()
			close(gate)
			done.Wait()
			// Each culprit costs two calls at each of nine levels, at most.
			if most := int64(2 + 18*bad); calls.Load() > most {
				t.Errorf("%d bad: %d calls, at most %d", bad, calls.Load(), most)
			}
		})
	}
}

func TestABatchThatCanNotTellLeavesItemsToThemselves(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"the connection is lost": func(context.Context) error { return errors.New("connection reset") },
		"it takes too long":      func(ctx context.Context) error { <-ctx.Done(); return errPoison },
		"it panics":              func(context.Context) error { panic("at the disco") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := make(chan struct{})
				sets := 0 // by the one runner
				b := New(func(ctx context.Context, items []string) ([]string, error) {
					if items[0] == "first" {
						<-first
					} else if len(items) > 1 {
						sets++
						if err := fail(ctx); err != nil {
							return nil, err
						}
					}
					return slices.Collect(func(yield func(string) bool) {
						for _, s := range items {
							yield(strings.ToUpper(s))
						}
					}), nil
				}, Options[string]{Max: 10, Runners: 1, Timeout: time.Second, Split: splits})
				var done sync.WaitGroup
				for _, word := range []string{"first", "a", "b", "c"} {
					done.Go(func() {
						if out, err := b.Do(t.Context(), word); err != nil || out != strings.ToUpper(word) {
							t.Errorf("%s: %s, %v", word, out, err)
						}
					})
					synctest.Wait()
				}
				close(first)
				done.Wait()
				if sets != 1 {
					t.Errorf("it was taken apart: %d sets", sets)
				}
			})
		})
	}
}

func TestACallerThatLeavesIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		run := doubler(&calls)
		gate := make(chan struct{})
		b := New(func(ctx context.Context, items []int) ([]int, error) {
			<-gate
			return run(ctx, items)
		}, Options[int]{Max: 10, Runners: 1, Timeout: time.Minute, Split: splits})
		go func() { _, _ = b.Do(t.Context(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := b.Do(ctx, -1); left <- err }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stayed := make(chan error, 1)
		go func() { _, err := b.Do(t.Context(), 2); stayed <- err }()
		synctest.Wait()
		close(gate)
		if err := <-stayed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if calls.Load() != 2 {
			t.Errorf("%d calls: what was left was run", calls.Load())
		}
	})
}

func TestBatchesAreBoundedByNumberAndWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		gate := make(chan struct{})
		b := New(func(_ context.Context, items []int) ([]int, error) {
			<-gate
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(items))
			return items, nil
		}, Options[int]{Max: 4, Runners: 1, Timeout: time.Minute, Split: splits, Weigh: func(n int) int { return n }, MaxWeight: 10})
		var done sync.WaitGroup
		for _, n := range []int{1, 3, 3, 3, 3, 100, 1, 1, 1, 1, 1} {
			done.Go(func() { _, _ = b.Do(t.Context(), n) })
			synctest.Wait()
		}
		close(gate)
		done.Wait()
		if want := []int{1, 3, 1, 1, 4, 1}; !slices.Equal(sizes, want) {
			t.Errorf("%v, not %v", sizes, want)
		}
	})
}

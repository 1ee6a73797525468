package web

import (
	"fmt"
	"testing"
)

// TestManySourcesFillNoMoreThanTheirBound: whoever names a new source with every
// request that is refused.
func TestManySourcesFillNoMoreThanTheirBound(t *testing.T) {
	t.Parallel()
	r := newRefusals()
	const sent = 3 * maxRefusals
	for i := range sent {
		r.add(fmt.Sprint("source-", i), 400)
	}
	r.add("source-1", 400) // one that is known goes on under its name
	if n := len(r.counts); n > maxRefusals+1 {
		t.Errorf("%d counts are held", n)
	}
	taken := r.take()
	if len(r.counts) != 0 {
		t.Error("what was taken is held still")
	}
	r.add("late", 400)
	r.putBack(taken)
	counts := map[string]int64{}
	var all int64
	for _, one := range r.take() {
		counts[one.Source] += one.Count
		all += one.Count
	}
	if all != sent+2 || counts["source-1"] < 1 || counts["late"] != 1 || counts[otherSources] < sent-maxRefusals || len(counts) > maxRefusals+1 {
		t.Errorf("%d refusals of %d sources, %d of others, %d late", all, len(counts), counts[otherSources], counts["late"])
	}
}

package store

import (
	"slices"
	"time"

	"geodlq/internal/dlq"
)

// classSlots is how many counts a series has of each moment: one of each class, and
// one of what is none.
var classSlots = len(dlq.Classes) + 1

// classSlot is where a class is counted.
func classSlot(c dlq.Class) int {
	if i := slices.Index(dlq.Classes, c); i >= 0 {
		return i
	}
	return len(dlq.Classes)
}

// series counts by class and moment, in pages of moments.
type series struct {
	step, page int64 // seconds of a moment and of a page
	pages      map[int64][]int64
	recent     int64 // entries come by day: the page that was last added to
	counts     []int64
}

func newSeries(step, page int64) *series {
	return &series{step: step, page: page, pages: map[int64][]int64{}, recent: -1}
}

func (s *series) add(second int64, slot int, n int64) {
	if page := second / s.page; page != s.recent {
		counts, ok := s.pages[page]
		if !ok {
			counts = make([]int64, int(s.page/s.step)*classSlots)
			s.pages[page] = counts
		}
		s.recent, s.counts = page, counts
	}
	s.counts[int(second%s.page/s.step)*classSlots+slot] += n
}

// each calls fn for every count.
func (s *series) each(fn func(second int64, slot int, n int64)) {
	for page, counts := range s.pages {
		for i, n := range counts {
			if n != 0 {
				fn(page*s.page+int64(i/classSlots)*s.step, i%classSlots, n)
			}
		}
	}
}

// ends are the first and the last moment at which something is counted.
func (s *series) ends() (first, last int64, any bool) {
	s.each(func(second int64, _ int, _ int64) {
		if !any {
			first, last, any = second, second, true
		}
		first, last = min(first, second), max(last, second)
	})
	return first, last, any
}

// bucketSteps are the widths of a timeline's bars, in seconds.
var bucketSteps = []int64{1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400}

// maxBuckets is how many bars a timeline has at most, but for the widest step.
const maxBuckets = 72

// emptyStep is the width of a timeline's bars where there are none.
const emptyStep = 300

func bucketStep(span int64) int64 {
	for _, step := range bucketSteps {
		if span/step < maxBuckets {
			return step
		}
	}
	// Letters of decades in one view: still no more bars than can be drawn.
	widest := bucketSteps[len(bucketSteps)-1]
	return widest * (1 + span/widest/maxBuckets)
}

// timeline makes bars of counts by the hour, or of those by the second that fine
// reads where hours are too coarse. It begins at since, or else at the first letter.
func timeline(hours *series, since *time.Time, fine func() (*series, error)) (int, []dlq.Bucket, error) {
	first, last, any := hours.ends()
	if !any {
		return emptyStep, []dlq.Bucket{}, nil
	}
	start := func(first int64) int64 {
		if since != nil {
			return since.Unix()
		}
		return first
	}
	const within = hour - 1 // the first and the last letter lie somewhere in their hours
	step := bucketStep(last + within - start(first))
	if step%hour == 0 && step == bucketStep(max(0, last-start(first+within))) {
		return int(step), bars(hours, step, start(first), last), nil
	}
	seconds, err := fine()
	if err != nil {
		return 0, nil, err
	}
	if first, last, any = seconds.ends(); !any {
		return emptyStep, []dlq.Bucket{}, nil
	}
	step = bucketStep(last - start(first))
	return int(step), bars(seconds, step, start(first), last), nil
}

func bars(s *series, step, start, end int64) []dlq.Bucket {
	from := start / step
	buckets := make([]dlq.Bucket, max(0, end/step-from)+1)
	for i := range buckets {
		buckets[i] = dlq.Bucket{Start: time.Unix((from+int64(i))*step, 0).UTC(), ByClass: map[dlq.Class]int64{}}
	}
	s.each(func(second int64, slot int, n int64) {
		if i := second/step - from; slot < len(dlq.Classes) && i >= 0 && i < int64(len(buckets)) {
			buckets[i].ByClass[dlq.Classes[slot]] += n
		}
	})
	for i := range buckets {
		for class, n := range buckets[i].ByClass {
			if n == 0 {
				delete(buckets[i].ByClass, class)
			}
		}
	}
	return buckets
}

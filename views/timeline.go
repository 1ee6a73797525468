package views

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"geodlq/internal/dlq"
)

// The timeline is drawn in a box of 1000 × 100 that is stretched to its place.
const (
	timelineWidth  = 1000.0
	timelineHeight = 100.0
)

// timelineView is a timeline laid out.
type timelineView struct {
	Start, End time.Time // end: exclusive
	Bucket     time.Duration
	Total      int64
	Peak       int64
	Layers     []timelineLayer
	Sel        *timelineSel // what since and until leave, nil if they leave all
}

// timelineLayer is all bars of a class, as the data of one SVG path.
type timelineLayer struct {
	Class dlq.Class
	Path  string
}

type timelineSel struct{ X, W string }

func units1(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// timelineOf lays out the buckets; nil where there is no bucket.
func timelineOf(c *dlq.Charts, f dlq.Filter) *timelineView {
	if c == nil || len(c.Buckets) == 0 || c.BucketSeconds <= 0 {
		return nil
	}
	v := &timelineView{Bucket: time.Duration(c.BucketSeconds) * time.Second, Start: c.Buckets[0].Start, End: c.Buckets[0].Start}
	for _, b := range c.Buckets {
		if b.Start.Before(v.Start) {
			v.Start = b.Start
		}
		if b.Start.After(v.End) {
			v.End = b.Start
		}
		var sum int64
		for _, class := range dlq.Classes {
			sum += b.ByClass[class]
		}
		v.Total += sum
		v.Peak = max(v.Peak, sum)
	}
	v.End = v.End.Add(v.Bucket)
	wide := v.Bucket.Seconds() / v.End.Sub(v.Start).Seconds() * timelineWidth
	paths := map[dlq.Class]*strings.Builder{}
	for _, b := range c.Buckets {
		top := timelineHeight
		for _, class := range dlq.Classes {
			n := b.ByClass[class]
			if n <= 0 {
				continue
			}
			high := float64(n) / float64(v.Peak) * timelineHeight
			top -= high
			if paths[class] == nil {
				paths[class] = &strings.Builder{}
			}
			bw := max(wide*.88, .8)
			fmt.Fprintf(paths[class], "M%.1f %.1fh%.1fv%.1fh-%.1fz", v.at(b.Start)+wide*.06, top, bw, high, bw)
		}
	}
	for _, class := range dlq.Classes {
		if path := paths[class]; path != nil {
			v.Layers = append(v.Layers, timelineLayer{class, path.String()})
		}
	}
	if f.Since != nil || f.Until != nil {
		from, to := 0.0, timelineWidth
		if f.Since != nil {
			from = min(max(v.at(*f.Since), 0), timelineWidth)
		}
		if f.Until != nil {
			to = min(max(v.at(*f.Until), 0), timelineWidth)
		}
		v.Sel = &timelineSel{X: units1(from), W: units1(max(to-from, 0))}
	}
	return v
}

// at is how far right a time lies.
func (v *timelineView) at(t time.Time) float64 {
	return t.Sub(v.Start).Seconds() / v.End.Sub(v.Start).Seconds() * timelineWidth
}

// tick is a time as the axis says it: with its day where the axis spans several.
func (v *timelineView) tick(t time.Time) string {
	switch {
	case v.End.Sub(v.Start) > 14*24*time.Hour:
		return t.UTC().Format("2 Jan")
	case v.End.Sub(v.Start) > 20*time.Hour:
		return t.UTC().Format("2 Jan 15:04")
	case v.End.Sub(v.Start) < 10*time.Minute:
		return t.UTC().Format("15:04:05")
	}
	return t.UTC().Format("15:04")
}

// ticks are the times along the axis, evenly; no more than there are bars, so that each
// is called otherwise.
func (v *timelineView) ticks() []time.Time {
	n := min(4, max(1, int(v.End.Sub(v.Start)/v.Bucket)))
	out := make([]time.Time, 0, n+1)
	for i := range n + 1 {
		out = append(out, v.Start.Add(v.End.Sub(v.Start)*time.Duration(i)/time.Duration(n)))
	}
	return out
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// timeField is a bound of the filter as a form shows it.
func timeField(t *time.Time) string {
	if t == nil {
		return ""
	}
	return stamp(*t)
}

func unix1(v *timelineView) string { return strconv.Itoa(int(v.Bucket.Seconds())) }

func unixOr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return unix(*t)
}

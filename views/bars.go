package views

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"geodlq/internal/dlq"
)

// A segment is a choice of statuses.
type segment struct {
	Name     string
	Statuses []dlq.Status
}

var segments = []segment{
	{"Open", nil},
	{"Pending", []dlq.Status{dlq.StatusPending}},
	{"Quarantined", []dlq.Status{dlq.StatusQuarantined}},
	{"Resolved", []dlq.Status{dlq.StatusReplayed, dlq.StatusAbandoned}},
}

func sameStatuses(a, b []dlq.Status) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// A spanChoice is a choice of how far back to look.
type spanChoice struct {
	Name, Ago string
	Span      time.Duration
}

var spans = []spanChoice{
	{"Any time", "", 0},
	{"1" + nbsp + "h", "1h", time.Hour},
	{"24" + nbsp + "h", "24h", 24 * time.Hour},
	{"7" + nbsp + "d", "7d", 7 * 24 * time.Hour},
}

// current reports whether f looks back as far: a relative time was made absolute
// when its link was followed, so some minutes have passed since.
func (s spanChoice) current(f dlq.Filter, now time.Time) bool {
	if s.Span == 0 || f.Since == nil || f.Until != nil {
		return s.Span == 0 && f.Since == nil && f.Until == nil
	}
	late := now.Sub(*f.Since) - s.Span
	return late >= 0 && late < s.Span/12
}

// A bar is one value of a dimension, as a count and as a link.
type bar struct {
	Name    string
	Class   dlq.Class // "" for a stage
	Count   int64
	Located int64
	Max     int64 // of all bars beside it
	Href    string
	On      bool // the filter selects it
	Out     bool // the filter selects others
}

func (b bar) Unlocated() int64 { return b.Count - b.Located }

// shown is the count; where the filter leaves a value out, there is none to tell.
func (b bar) shown() string {
	if b.Out && b.Count == 0 {
		return "–"
	}
	return number(b.Count)
}

func (b bar) solid() string  { return b.width(b.Located) }
func (b bar) hollow() string { return b.width(b.Unlocated()) }

// width is the share of the longest bar; what there is stays visible.
func (b bar) width(n int64) string {
	if n <= 0 || b.Max <= 0 {
		return "0"
	}
	return strconv.FormatFloat(max(100*float64(n)/float64(b.Max), 1.5), 'f', 1, 64) + "%"
}

// classBars are the classes, the most frequent first.
func classBars(s *dlq.Stats, f dlq.Filter) []bar {
	bars := make([]bar, 0, len(dlq.Classes))
	for _, c := range dlq.Classes {
		n := countOf(s.ByClass, string(c))
		bars = append(bars, bar{
			Name: string(c), Class: c, Count: n.Count, Located: n.Located, Href: Home(ToggleClass(f, c)),
			On: selected(f.Classes, c), Out: len(f.Classes) > 0 && !selected(f.Classes, c),
		})
	}
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(b.Count, a.Count) })
	return scaled(bars)
}

// stageBars are the stages in pipeline order.
func stageBars(s *dlq.Stats, f dlq.Filter) []bar {
	bars := make([]bar, 0, len(dlq.Stages))
	for _, stage := range dlq.Stages {
		n := countOf(s.ByStage, string(stage))
		bars = append(bars, bar{
			Name: string(stage), Count: n.Count, Located: n.Located, Href: Home(ToggleStage(f, stage)),
			On: selected(f.Stages, stage), Out: len(f.Stages) > 0 && !selected(f.Stages, stage),
		})
	}
	return scaled(bars)
}

func scaled(bars []bar) []bar {
	var longest int64
	for _, b := range bars {
		longest = max(longest, b.Count)
	}
	for i := range bars {
		bars[i].Max = longest
	}
	return bars
}

func countOf(counts []dlq.Count, name string) dlq.Count {
	for _, c := range counts {
		if c.Name == name {
			return c
		}
	}
	return dlq.Count{}
}

func selected[T comparable](list []T, value T) bool { return slices.Contains(list, value) }

// causes says how many groups there are; Stats tells no more than twenty.
func causes(groups []dlq.Group) string {
	if len(groups) >= 20 {
		return "the largest " + number(len(groups))
	}
	return count(len(groups), "cause", "causes")
}

func groupTitle(g dlq.Group) string {
	if g.Title == "" {
		return "no error text"
	}
	return g.Title
}

// since is how long a group has been failing.
func since(g dlq.Group, now time.Time) string {
	if g.First.IsZero() {
		return ""
	}
	return "since " + age(now.Sub(g.First))
}

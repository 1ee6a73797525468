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
	Text    bool      // Name came from outside
	Class   dlq.Class // "" where it is of another dimension
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
func classBars(p TriagePage, c *dlq.Charts) []bar {
	bars := make([]bar, 0, len(dlq.Classes))
	for _, class := range dlq.Classes {
		b := barOf(c.ByClass, class, p.Filter.Classes)
		b.Class, b.Href = class, p.home(ToggleClass(p.Filter, class))
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(b.Count, a.Count) })
	return scaled(bars)
}

// stageBars are the stages in pipeline order.
func stageBars(p TriagePage, c *dlq.Charts) []bar {
	bars := make([]bar, 0, len(dlq.Stages))
	for _, stage := range dlq.Stages {
		b := barOf(c.ByStage, stage, p.Filter.Stages)
		b.Href = p.home(ToggleStage(p.Filter, stage))
		bars = append(bars, b)
	}
	return scaled(bars)
}

// statusBars are the statuses, the open ones first. None selected are the open
// ones, so that a first choice narrows to itself.
func statusBars(p TriagePage, c *dlq.Charts) []bar {
	bars := make([]bar, 0, len(dlq.Statuses))
	for _, status := range dlq.Statuses {
		b := barOf(c.ByStatus, status, p.Filter.Statuses)
		b.Href = p.home(WithStatuses(p.Filter, toggle(p.Filter.Statuses, status)...))
		bars = append(bars, b)
	}
	return scaled(bars)
}

// textBars are the values of a dimension that letters name themselves, with those
// selected among them even where they count nothing.
func textBars(p TriagePage, counts []dlq.Count, of func(*dlq.Filter) *[]string) []bar {
	chosen := *of(&p.Filter)
	var bars []bar
	add := func(name string) {
		f := p.Filter
		*of(&f) = toggle(chosen, name)
		b := barOf(counts, name, chosen)
		b.Text, b.Href = true, p.home(f)
		bars = append(bars, b)
	}
	for _, c := range counts {
		if c.Name != "" {
			add(c.Name)
		}
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(counts, func(c dlq.Count) bool { return c.Name == name }) {
			add(name)
		}
	}
	return scaled(bars)
}

func sourcesOf(f *dlq.Filter) *[]string { return &f.Sources }
func tasksOf(f *dlq.Filter) *[]string   { return &f.Tasks }

func barOf[T ~string](counts []dlq.Count, name T, chosen []T) bar {
	n := countOf(counts, string(name))
	return bar{Name: string(name), Count: n.Count, Located: n.Located, On: selected(chosen, name), Out: len(chosen) > 0 && !selected(chosen, name)}
}

// plainBars are counts that are no filter: of an order's letters.
func plainBars(counts []dlq.Count, classes bool) []bar {
	var bars []bar
	for _, c := range counts {
		if c.Count == 0 {
			continue
		}
		b := bar{Name: c.Name, Count: c.Count, Located: c.Located}
		if classes {
			b.Class = dlq.Class(c.Name)
		}
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(b.Count, a.Count) })
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

// causes says how many groups there are, of which the largest are shown.
func causes(shown []dlq.Group, all int) string {
	if all > len(shown) {
		return "the largest of " + number(all)
	}
	return count(len(shown), "cause", "causes")
}

// groupBar is a cause's bar beside the largest.
func groupBar(p TriagePage, g dlq.Group) bar {
	b := bar{Class: g.Class, Count: g.Count, Located: g.Located}
	for _, other := range p.groups() {
		b.Max = max(b.Max, other.Count)
	}
	return b
}

func groupUnplaced(g dlq.Group) string {
	switch n := g.Count - g.Located; n {
	case 0:
		return ""
	case g.Count:
		return " · no place"
	default:
		return " · " + number(n) + " no place"
	}
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

// folded is how many bars behind the first shown are not selected.
func folded(bars []bar, shown int) int {
	n := 0
	for i, b := range bars {
		if i >= shown && !b.On {
			n++
		}
	}
	return n
}

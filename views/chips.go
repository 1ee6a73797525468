package views

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"geodlq/internal/dlq"
)

// A chip is one condition of a filter, with the filter that lacks it.
type chip struct {
	Name, Value string
	Title       string // the exact value, where Value is short for it
	Class       dlq.Class
	Without     dlq.Filter
}

// chips are the conditions of f in the order in which the rail tells them.
func chips(f dlq.Filter, groups []dlq.Group, now time.Time) []chip {
	var out []chip
	add := func(c chip, change func(*dlq.Filter)) {
		c.Without = f
		change(&c.Without)
		out = append(out, c)
	}
	if f.BBox != nil {
		b := *f.BBox
		text := strings.Join([]string{degrees(b.West), degrees(b.South), degrees(b.East), degrees(b.North)}, " ")
		add(chip{Name: "box", Value: text, Title: "west " + degrees(b.West) + ", south " + degrees(b.South) + ", east " + degrees(b.East) + ", north " + degrees(b.North)},
			func(f *dlq.Filter) { f.BBox = nil })
	}
	for _, s := range f.Statuses {
		add(chip{Name: "status", Value: string(s)}, func(f *dlq.Filter) { f.Statuses = toggle(f.Statuses, s) })
	}
	for _, c := range f.Classes {
		add(chip{Name: "class", Value: string(c), Class: c}, func(f *dlq.Filter) { f.Classes = toggle(f.Classes, c) })
	}
	for _, s := range f.Stages {
		add(chip{Name: "stage", Value: string(s)}, func(f *dlq.Filter) { f.Stages = toggle(f.Stages, s) })
	}
	for _, g := range f.Groups {
		value := g
		if i := slices.IndexFunc(groups, func(group dlq.Group) bool { return group.Group == g }); i >= 0 && groups[i].Title != "" {
			value = groups[i].Title
		}
		add(chip{Name: "cause", Value: value, Title: g}, func(f *dlq.Filter) { f.Groups = toggle(f.Groups, g) })
	}
	at := func(t time.Time) string { return ago(t, now) }
	if f.Since != nil && f.Until != nil && at(*f.Since) == at(*f.Until) { // apart by less than is said
		at = exact
	}
	if f.Since != nil {
		add(chip{Name: "failed since", Value: at(*f.Since), Title: exact(*f.Since)}, func(f *dlq.Filter) { f.Since = nil })
	}
	if f.Until != nil {
		add(chip{Name: "failed before", Value: at(*f.Until), Title: exact(*f.Until)}, func(f *dlq.Filter) { f.Until = nil })
	}
	if f.Located != nil {
		value := "some"
		if !*f.Located {
			value = "none"
		}
		add(chip{Name: "place", Value: value}, func(f *dlq.Filter) { f.Located = nil })
	}
	for _, l := range f.LocatedBy {
		add(chip{Name: "located by", Value: string(l)}, func(f *dlq.Filter) { f.LocatedBy = toggle(f.LocatedBy, l) })
	}
	texts := func(name string, of func(*dlq.Filter) *[]string) {
		for _, value := range *of(&f) {
			add(chip{Name: name, Value: value}, func(f *dlq.Filter) { *of(f) = toggle(*of(f), value) })
		}
	}
	texts("task", func(f *dlq.Filter) *[]string { return &f.Tasks })
	texts("source", func(f *dlq.Filter) *[]string { return &f.Sources })
	texts("claimed CRS", func(f *dlq.Filter) *[]string { return &f.CRSs })
	texts("code version", func(f *dlq.Filter) *[]string { return &f.CodeVersion })
	texts("work key", func(f *dlq.Filter) *[]string { return &f.WorkKeys })
	for i, p := range f.Props {
		add(chip{Name: p.Root + "." + strings.Join(p.Path, "."), Value: p.Value}, func(f *dlq.Filter) {
			f.Props = slices.Delete(slices.Clone(f.Props), i, i+1)
		})
	}
	if f.Query != "" {
		add(chip{Name: "text", Value: f.Query}, func(f *dlq.Filter) { f.Query = "" })
	}
	return out
}

// degrees is a coordinate with a real minus and no more digits than a box in
// words needs.
func degrees(v float64) string {
	text := strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', 3, 64), "0"), ".")
	if text == "-0" {
		text = "0"
	}
	return strings.Replace(text, "-", "−", 1)
}

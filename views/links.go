package views

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"geodlq/internal/dlq"
)

// SinkURL is where the demo takes its sink down and brings it back.
const SinkURL = "/demo/sink"

// Home is the path of the triage page under a filter.
func Home(f dlq.Filter) string { return HomeAfter(f, nil) }

// HomeAfter is Home from behind a letter on; nil: from the first.
func HomeAfter(f dlq.Filter, after *dlq.Cursor) string {
	v := f.Values()
	if after != nil {
		v.Set("after", after.String())
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// LetterURL is the path of a letter's page.
func LetterURL(id int64) string { return "/letters/" + strconv.FormatInt(id, 10) }

// ActionURL is where a form does an action to a letter.
func ActionURL(id int64, action dlq.Action) string { return LetterURL(id) + "/" + string(action) }

// FeatureURL is the path of a letter as GeoJSON.
func FeatureURL(id int64) string { return "/v1/dead-letters/" + strconv.FormatInt(id, 10) }

// PayloadURL is the path of a letter's exact bytes.
func PayloadURL(id int64) string { return FeatureURL(id) + "/payload" }

// RedrivesURL is the path of the list of orders, and where one is previewed.
const RedrivesURL = "/redrives"

// RedriveURL is the path of an order's page.
func RedriveURL(id int64) string { return RedrivesURL + "/" + strconv.FormatInt(id, 10) }

// UndoURL is where a form takes the redrive of a letter back.
func UndoURL(id int64) string { return LetterURL(id) + "/undo" }

// ExportURL is the path of all that matches as a file of a format, csv or geojson.
func ExportURL(f dlq.Filter, format string) string { return query("/export."+format, f) }

// TilesURL is the template of the tiles of all that matches.
func TilesURL(f dlq.Filter) string { return query("/tiles/{z}/{x}/{y}.mvt", f) }

func query(path string, f dlq.Filter) string {
	if v := f.Values(); len(v) > 0 {
		return path + "?" + v.Encode()
	}
	return path
}

// withParams is a path of ours with parameters set, pairs of name and value; an
// empty value takes one out.
func withParams(path string, pairs ...string) string {
	base, raw, _ := strings.Cut(path, "?")
	v, err := url.ParseQuery(raw)
	if err != nil {
		return path
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v.Del(pairs[i]); pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return base
	}
	return base + "?" + v.Encode()
}

// webLink returns a link that a letter brought, if following it can do no more
// than open a page.
func webLink(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", false
	}
	return u.String(), true
}

// toggle is the list with value taken out, or put in where it is missing. The
// list itself is left alone.
func toggle[T comparable](list []T, value T) []T {
	if i := slices.Index(list, value); i >= 0 {
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	return append(slices.Clone(list), value)
}

// ToggleStage is f with a stage selected or no longer selected.
func ToggleStage(f dlq.Filter, s dlq.Stage) dlq.Filter {
	f.Stages = toggle(f.Stages, s)
	return f
}

// ToggleClass is f with a class selected or no longer selected.
func ToggleClass(f dlq.Filter, c dlq.Class) dlq.Filter {
	f.Classes = toggle(f.Classes, c)
	return f
}

// ToggleGroup is f with a group selected or no longer selected.
func ToggleGroup(f dlq.Filter, group string) dlq.Filter {
	f.Groups = toggle(f.Groups, group)
	return f
}

// WithStatuses is f for letters of these statuses; none: the open ones.
func WithStatuses(f dlq.Filter, statuses ...dlq.Status) dlq.Filter {
	f.Statuses = statuses
	return f
}

// WithLocated is f for letters with a place, or without.
func WithLocated(f dlq.Filter, located bool) dlq.Filter {
	f.Located = &located
	return f
}

// homeSince is home with a relative time, such as 24h, which becomes absolute
// when the link is followed; empty: any time.
func (p TriagePage) homeSince(ago string) string {
	f := p.Filter
	f.Since, f.Until = nil, nil
	return withParams(p.home(f), "since", ago)
}

// A field is one hidden input.
type field struct{ Name, Value string }

// fieldsWithout is what a form sends along so that it stays within the filter,
// less the names that the form itself asks for.
func fieldsWithout(f dlq.Filter, names ...string) []field {
	values := f.Values()
	for _, name := range names {
		values.Del(name)
	}
	var fields []field
	for _, name := range dlq.FilterNames {
		for _, value := range values[name] {
			fields = append(fields, field{name, value})
		}
	}
	return fields
}

// withoutLocated is f for letters with and without a place.
func withoutLocated(f dlq.Filter) dlq.Filter {
	f.Located = nil
	return f
}

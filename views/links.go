package views

import (
	"net/url"
	"slices"
	"strconv"

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

// homeSince is Home with a relative time, such as 24h, which becomes absolute
// when the link is followed; empty: any time.
func homeSince(f dlq.Filter, ago string) string {
	f.Since, f.Until = nil, nil
	v := f.Values()
	if ago != "" {
		v.Set("since", ago)
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// A field is one hidden input.
type field struct{ Name, Value string }

// searchFields is what the search form sends along, so that a search stays within
// the filter.
func searchFields(f dlq.Filter) []field {
	f.Query = ""
	values := f.Values()
	var fields []field
	for _, name := range dlq.FilterNames {
		for _, value := range values[name] {
			fields = append(fields, field{name, value})
		}
	}
	return fields
}

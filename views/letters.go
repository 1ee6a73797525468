package views

import (
	"strings"

	"geodlq/internal/dlq"
)

// redrivable reports whether a letter can be redriven here: a geotask is done by
// its owner.
func redrivable(l *dlq.Letter) bool {
	return l.Kind == dlq.KindEvent && dlq.ActionRedrive.Allowed(l.Status)
}

// offered is the mildest action that a letter's form can do.
func offered(l *dlq.Letter) dlq.Action {
	if dlq.ActionQuarantine.Allowed(l.Status) {
		return dlq.ActionQuarantine
	}
	return dlq.ActionRelease
}

// allowsAny reports whether the letter's status allows anything.
func allowsAny(l *dlq.Letter) bool {
	for _, a := range dlq.Actions {
		if a.Allowed(l.Status) {
			return true
		}
	}
	return false
}

// subject names what failed: its task, or at least its source.
func subject(l *dlq.Letter) string {
	switch {
	case l.Task != "":
		return l.Task
	case l.Source != "":
		return l.Source
	}
	return "letter " + number(l.ID)
}

// owner is whoever runs a geotask.
func owner(l *dlq.Letter) string {
	if l.Source != "" && l.Source != dlq.DefaultSource {
		return l.Source
	}
	return subject(l)
}

// lookAgain is the page that a letter stands on.
func lookAgain(l *dlq.Letter, back string) string {
	if back != "" {
		return back
	}
	return LetterURL(l.ID)
}

// reasonOf says what a letter's reason is the reason of.
func reasonOf(s dlq.Status) string {
	switch s {
	case dlq.StatusQuarantined:
		return "Quarantined"
	case dlq.StatusAbandoned:
		return "Abandoned"
	}
	return "Reason"
}

// causeOf is a letter's error with what differs taken out.
func causeOf(l *dlq.Letter) string {
	if title := dlq.GroupTitle(l.Error); title != "" {
		return title
	}
	return l.Fingerprint
}

// maxLine bounds what a row carries of an error; the page has the rest.
const maxLine = 300

// firstLine is the beginning of an error.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return "no error text"
	}
	if short := dlq.CleanText(line, maxLine); len(short) < len(line) {
		return short + "…"
	}
	return line
}

// middle is a text of at most so many characters: keys that begin alike are told apart
// by their ends.
func middle(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	head := most / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-head-1):])
}

// matches says how many letters the filter selects.
func matches(p TriagePage) string {
	n := p.total()
	if !p.filtered() {
		return count(n, "open letter", "open letters")
	}
	if n == 1 {
		return "1" + nbsp + "letter matches"
	}
	return number(n) + nbsp + "match"
}

// triageTitle tells the window what stands on the page.
func triageTitle(p TriagePage) string {
	switch {
	case !p.AnyEver:
		return "Triage"
	case p.Open != nil:
		return string(p.Open.Letter.Class) + " · " + subject(p.Open.Letter)
	}
	return matches(p)
}

// besidePage is the open letter as part of this page.
func (p TriagePage) besidePage() LetterPage {
	open := *p.Open
	open.Beside = true
	return open
}

// example is an event that fails for good, as a command.
func example(baseURL string) string {
	return strings.Join([]string{
		"curl " + baseURL + "/v1/events \\",
		"  -H 'Content-Type: application/geo+json' \\",
		"  -H 'Content-Crs: EPSG:9999' \\",
		"  -H 'Idempotency-Key: first-letter' \\",
		`  -d '{"type":"Point","coordinates":[2.17,41.39]}'`,
	}, "\n")
}

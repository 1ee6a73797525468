package views

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"geodlq/internal/dlq"
)

// LedgerPage is the page at /ledger.
type LedgerPage struct {
	Outage *Outage // nil: all is well
	Ledger dlq.Ledger
	Query  dlq.LedgerQuery
	Now    time.Time
}

// LedgerURL is the path of the ledger's page.
const LedgerURL = "/ledger"

// ledgerLink is the ledger under a query, as a page or a file.
func ledgerLink(path string, q dlq.LedgerQuery, now time.Time) string {
	v := q.Values()
	if today := dlq.Today(now); q.Until.Equal(today.AddDate(0, 0, 1)) {
		v.Del("until")
		if q.Since.Equal(q.Until.AddDate(0, 0, -dlq.LedgerDays)) {
			v.Del("since")
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// ledgerSpans are the ranges offered, in days back from today.
var ledgerSpans = []struct {
	Name string
	Days int
}{{"Today", 1}, {"7 days", 7}, {"30 days", 30}, {"90 days", 90}}

func (p LedgerPage) span(days int) dlq.LedgerQuery {
	q := p.Query
	q.Until = dlq.Today(p.Now).AddDate(0, 0, 1)
	q.Since = q.Until.AddDate(0, 0, -days)
	return q
}

func (p LedgerPage) isSpan(days int) bool {
	s := p.span(days)
	return s.Since.Equal(p.Query.Since) && s.Until.Equal(p.Query.Until)
}

func (p LedgerPage) ofSource(sources ...string) dlq.LedgerQuery {
	q := p.Query
	q.Sources = sources
	return q
}

// source is the one source that is asked for, "" for all or several.
func (p LedgerPage) source() string {
	if len(p.Query.Sources) == 1 {
		return p.Query.Sources[0]
	}
	return ""
}

// range_ is the query's days in words.
func (p LedgerPage) range_() string {
	last := p.Query.Until.AddDate(0, 0, -1)
	if !last.After(p.Query.Since) {
		return day(p.Query.Since)
	}
	return day(p.Query.Since) + " to " + day(last)
}

func day(t time.Time) string { return t.Format("2 January 2006") }

// dayInput is a day as an input has it.
func dayInput(t time.Time) string { return t.Format(time.DateOnly) }

// term is one addend of the sum.
type term struct {
	Sign, Name string
	Count      int64
}

// terms are the addends; what is spooled only where something is, since it mostly
// is not.
func (p LedgerPage) terms(c dlq.LedgerCounts) []term {
	terms := []term{
		{"=", "Processed", c.Processed}, {"+", "Dead", c.Dead}, {"+", "In flight", c.InFlight}, {"+", "Duplicates", c.Duplicates},
	}
	if p.Ledger.Totals.Spooled != 0 {
		terms = append(terms, term{"+", "Spooled", c.Spooled})
	}
	return terms
}

// reported: the range has reports of geotasks.
func (p LedgerPage) reported() bool {
	return p.Ledger.Totals.Reports != 0 || p.Ledger.Totals.ReportsRepeated != 0
}

// ledgerColumns is how many columns the table has behind day and source.
func (p LedgerPage) ledgerColumns() string {
	n := 3 + len(p.terms(dlq.LedgerCounts{}))
	if p.reported() {
		n++
	}
	return strconv.Itoa(n)
}

// ledgerGroup is a day with its sources.
type ledgerGroup struct {
	Day  time.Time
	Rows []dlq.LedgerDay
	Sum  *dlq.LedgerDay // nil where one row says the same, or rows are left out
}

func (p LedgerPage) groups() []ledgerGroup {
	var groups []ledgerGroup
	for _, row := range p.Ledger.Days {
		if n := len(groups); n == 0 || !groups[n-1].Day.Equal(row.Day) {
			groups = append(groups, ledgerGroup{Day: row.Day})
		}
		last := &groups[len(groups)-1]
		last.Rows = append(last.Rows, row)
	}
	for i := range groups {
		g := &groups[i]
		cut := i == len(groups)-1 && p.more() > 0
		if len(g.Rows) < 2 || cut {
			continue
		}
		g.Sum = &dlq.LedgerDay{Day: g.Day, Refused: map[int]int64{}}
		for _, row := range g.Rows {
			g.Sum.Add(row.LedgerCounts)
			for status, n := range row.Refused {
				g.Sum.Refused[status] += n
			}
		}
	}
	return groups
}

// more is how many rows are in the totals but not on the page.
func (p LedgerPage) more() int64 { return p.Ledger.Rows - int64(len(p.Ledger.Days)) }

// refusedPart is what was refused by one status.
type refusedPart struct {
	Status int
	Count  int64
}

func refusedParts(d *dlq.LedgerDay) []refusedPart {
	one := dlq.Ledger{Totals: *d}
	var parts []refusedPart
	for _, status := range one.RefusedStatuses() {
		parts = append(parts, refusedPart{status, d.Refused[status]})
	}
	return parts
}

// nothing says what the query did not find.
func (p LedgerPage) nothing() string {
	of := ""
	if n := len(p.Query.Sources); n > 0 {
		of = " of " + plural(n, "this source", "these sources")
	}
	return "Nothing was received or refused" + of + " in the days " + p.range_() + "."
}

// refusedWords says what the statuses mean.
func refusedWords(parts []refusedPart) string {
	var words []string
	for _, r := range parts {
		words = append(words, strconv.Itoa(r.Status)+" "+why(r.Status))
	}
	return "Refused is what was answered with an error, and is in no other column: " + strings.Join(words, "; ") + "."
}

// why is a status of the door in words.
func why(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "the request can’t be read"
	case http.StatusUnauthorized:
		return "not signed in"
	case http.StatusForbidden:
		return "not allowed"
	case http.StatusConflict:
		return "the key was used for another body"
	case http.StatusRequestEntityTooLarge:
		return "too large"
	case http.StatusUnsupportedMediaType:
		return "a coding that is not taken"
	case http.StatusUnprocessableEntity:
		return "a value that can’t be taken"
	case http.StatusTooManyRequests:
		return "too many requests"
	case http.StatusInternalServerError:
		return "it broke on our side"
	case http.StatusServiceUnavailable:
		return "no room, or no database"
	}
	return "refused"
}

// ledgerColumn is a figure of the ledger in words.
func ledgerColumn(name string) string {
	switch name {
	case "received", "processed", "dead":
		return name
	case "in_flight":
		return "in flight"
	}
	return "unknown"
}

// checkLate is when a check is overdue: it comes every 10 minutes.
const checkLate = 25 * time.Minute

func (p LedgerPage) late() bool {
	return p.Ledger.Check == nil || p.Now.Sub(p.Ledger.Check.CheckedAt) > checkLate
}

func (p LedgerPage) mismatched() bool { return p.Ledger.Check != nil && p.Ledger.Check.Mismatched > 0 }

// shownMismatches bounds what the alert lists.
const shownMismatches = 8

func (p LedgerPage) mismatches() []dlq.LedgerMismatch {
	all := p.Ledger.Check.Mismatches
	return all[:min(len(all), shownMismatches)]
}

// unshown is how many mismatches the alert does not list.
func (p LedgerPage) unshown() int64 {
	return p.Ledger.Check.Mismatched - int64(len(p.mismatches()))
}

// apart is the difference of two figures, with its sign.
func apart(m dlq.LedgerMismatch) string {
	d := m.Tables - m.Ledger
	if d > 0 {
		return "+" + number(d)
	}
	return number(d)
}

// ofMismatch is the ledger of the day and source of a mismatch.
func ofMismatch(m dlq.LedgerMismatch) string {
	return LedgerURL + "?" + url.Values{
		"source": {m.Source}, "since": {dayInput(m.Day)}, "until": {dayInput(m.Day.AddDate(0, 0, 1))},
	}.Encode()
}

func (p LedgerPage) totalsAddUp() bool {
	return p.Ledger.Totals.Sum() == p.Ledger.Totals.Received && dayAddsUp(p.Ledger, p.Ledger.Days)
}

func dayAddsUp(l dlq.Ledger, rows []dlq.LedgerDay) bool {
	for i := range rows {
		if !l.AddsUp(&rows[i]) {
			return false
		}
	}
	return true
}

// without is a list less its i-th member.
func without(list []string, i int) []string { return slices.Delete(slices.Clone(list), i, i+1) }

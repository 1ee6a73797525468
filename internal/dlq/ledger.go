package dlq

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// LedgerCounts are units and what became of them. A unit is an event at the door,
// or each feature of a collection in its place.
type LedgerCounts struct {
	Received   int64
	Processed  int64
	Dead       int64
	InFlight   int64
	Duplicates int64 // received again: the same key with the same bytes
	Spooled    int64 // on the disk of the process that tells, not yet in the database

	// Failures of geotasks that were reported to us. The work was done elsewhere,
	// so they are no part of the sum.
	Reports         int64
	ReportsRepeated int64
}

// Sum is where the units are: it equals Received where the ledger adds up.
func (c LedgerCounts) Sum() int64 {
	return c.Processed + c.Dead + c.InFlight + c.Duplicates + c.Spooled
}

// Add adds o to c.
func (c *LedgerCounts) Add(o LedgerCounts) {
	c.Received += o.Received
	c.Processed += o.Processed
	c.Dead += o.Dead
	c.InFlight += o.InFlight
	c.Duplicates += o.Duplicates
	c.Spooled += o.Spooled
	c.Reports += o.Reports
	c.ReportsRepeated += o.ReportsRepeated
}

// LedgerDay is the ledger of one source on one UTC day, by the day of receipt.
type LedgerDay struct {
	Day    time.Time // midnight UTC
	Source string
	LedgerCounts
	Refused map[int]int64 // by HTTP status
}

// RefusedAll is what was refused by whatever status.
func (d *LedgerDay) RefusedAll() int64 {
	var n int64
	for _, count := range d.Refused {
		n += count
	}
	return n
}

// LedgerMismatch is a figure of the ledger that the tables do not bear out.
type LedgerMismatch struct {
	Day    time.Time
	Source string
	Column string // received, processed, dead or in_flight
	Ledger int64
	Tables int64
}

// LedgerCheck is a comparison of the ledger with the tables, in one snapshot.
type LedgerCheck struct {
	CheckedAt  time.Time
	Mismatched int64            // figures
	Mismatches []LedgerMismatch // the newest days first, at most MaxMismatches
}

// MaxMismatches bounds the mismatches that are told one by one.
const MaxMismatches = 1000

// LedgerSpooled is how much one source has in a process's spool, of one UTC day.
type LedgerSpooled struct {
	Source string
	Day    time.Time
	Count  int64
}

// LedgerRefusal is how often the door answered a source with an error.
type LedgerRefusal struct {
	Day    time.Time // midnight UTC
	Source string
	Status int // of HTTP
	Count  int64
}

// Ledger is the answer to a LedgerQuery.
type Ledger struct {
	Days    []LedgerDay // newest first, then by source; at most as many as were asked for
	Rows    int64       // how many there are
	Totals  LedgerDay   // of all rows, be they in Days or not
	Sources []string    // some that are in the range, whatever the query's sources
	Check   *LedgerCheck
}

// Mismatches are what the last check found of a row.
func (l *Ledger) Mismatches(d *LedgerDay) []LedgerMismatch {
	if l.Check == nil {
		return nil
	}
	var out []LedgerMismatch
	for _, m := range l.Check.Mismatches {
		if m.Source == d.Source && m.Day.Equal(d.Day) {
			out = append(out, m)
		}
	}
	return out
}

// AddsUp reports whether a row is its own sum and the last check found nothing
// against it.
func (l *Ledger) AddsUp(d *LedgerDay) bool {
	return d.Sum() == d.Received && len(l.Mismatches(d)) == 0
}

// AddSpooled counts in what waits in a spool: received, and not yet in the tables.
// What the query does not ask for is passed over.
func (l *Ledger) AddSpooled(q LedgerQuery, spooled []LedgerSpooled) {
	for _, s := range spooled {
		if s.Count == 0 || s.Day.Before(q.Since) || !s.Day.Before(q.Until) || len(q.Sources) > 0 && !slices.Contains(q.Sources, s.Source) {
			continue
		}
		i, found := slices.BinarySearchFunc(l.Days, s, func(d LedgerDay, s LedgerSpooled) int {
			if c := s.Day.Compare(d.Day); c != 0 {
				return c
			}
			return strings.Compare(d.Source, s.Source)
		})
		if !found {
			l.Days = slices.Insert(l.Days, i, LedgerDay{Day: s.Day, Source: s.Source, Refused: map[int]int64{}})
			l.Rows++
		}
		waits := LedgerCounts{Received: s.Count, Spooled: s.Count}
		l.Days[i].Add(waits)
		l.Totals.Add(waits)
	}
}

// RefusedStatuses are the statuses by which anything in the ledger was refused,
// ascending.
func (l *Ledger) RefusedStatuses() []int { return slices.Sorted(maps.Keys(l.Totals.Refused)) }

// LedgerQuery selects rows of the ledger.
type LedgerQuery struct {
	Sources []string  // none: all
	Since   time.Time // the first day, midnight UTC
	Until   time.Time // the day behind the last
}

// LedgerNames are the parameters of a LedgerQuery in a query string.
var LedgerNames = []string{"source", "since", "until"}

// Range of a LedgerQuery, in days: unless it says, and at most.
const (
	LedgerDays    = 7
	MaxLedgerDays = 400
)

// Today is the UTC day of a time.
func Today(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour) }

// ParseLedgerQuery reads a query from a query string: source, repeatable; since and
// until, days as 2026-11-30, until exclusive. Without them it is the last seven
// days, today with them. Its error is a *FieldError of kind ErrBadRequest.
func ParseLedgerQuery(v url.Values, now time.Time) (LedgerQuery, error) {
	p := filterParser{values: v, now: now}
	q := LedgerQuery{Sources: p.texts("source")}
	for name := range v {
		if !slices.Contains(LedgerNames, name) {
			p.fail(CleanText(name, 60), "is no parameter of this address")
		}
	}
	since, until := p.day("since"), p.day("until")
	switch {
	case p.err != nil:
	case since == nil && until == nil:
		q.Until = Today(now).AddDate(0, 0, 1)
		q.Since = q.Until.AddDate(0, 0, -LedgerDays)
	case since == nil:
		q.Until, q.Since = *until, until.AddDate(0, 0, -LedgerDays)
	case until == nil:
		q.Since, q.Until = *since, Today(now).AddDate(0, 0, 1)
		if !q.Since.Before(q.Until) {
			p.fail("since", "lies ahead of today")
		}
	default:
		q.Since, q.Until = *since, *until
		if !q.Since.Before(q.Until) {
			p.fail("until", "is not after since; it is the day behind the last")
		}
	}
	if p.err == nil && q.Until.Sub(q.Since) > MaxLedgerDays*24*time.Hour {
		p.fail("since", "lies more than %d days before until", MaxLedgerDays)
	}
	return q, p.err
}

// dayLayout is a day as ISO 8601 writes it.
const dayLayout = time.DateOnly

func (p *filterParser) day(name string) *time.Time {
	text := p.text(name)
	if text == "" {
		return nil
	}
	day, err := time.Parse(dayLayout, text)
	if err != nil || day.Year() < 1900 {
		p.fail(name, "%.40q is not a day, such as 2026-11-30", text)
		return nil
	}
	return &day
}

// Values are the query as a query string, both days said.
func (q LedgerQuery) Values() url.Values {
	v := url.Values{"since": {q.Since.Format(dayLayout)}, "until": {q.Until.Format(dayLayout)}}
	if len(q.Sources) > 0 {
		v["source"] = q.Sources
	}
	return v
}

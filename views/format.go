package views

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"geodlq/internal/dlq"
)

const nbsp = "\u00a0" // between a number and its unit

// number writes n with thousands separators: 1,284.
func number[T ~int | ~int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "−", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// count writes n with its noun: 1 letter, 1,284 letters.
func count[T ~int | ~int64](n T, one, many string) string {
	return number(n) + nbsp + plural(n, one, many)
}

// plural is the noun alone, as count would write it.
func plural[T ~int | ~int64](n T, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// percent is part of whole, rounded, but never 0% or 100% unless it is.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	p := math.Round(100 * float64(part) / float64(whole))
	switch {
	case part > 0 && p < 1:
		return "<1%"
	case part < whole && p > 99:
		return ">99%"
	}
	return strconv.Itoa(int(p)) + "%"
}

// units of a span, the largest first.
var units = []struct {
	of   time.Duration
	name string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}

// age is a span in its largest unit: 40 s, 2 min, 3 d. Below a second: now.
func age(d time.Duration) string {
	for _, u := range units {
		if d >= u.of {
			return strconv.FormatInt(int64(d/u.of), 10) + nbsp + u.name
		}
	}
	return "now"
}

// span is a span in its two largest units: 3 d 4 h. Below a second: under 1 s.
func span(d time.Duration) string {
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := age(d)
		if i+1 < len(units)-1 { // seconds beside minutes say nothing
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += nbsp + strconv.FormatInt(int64(rest), 10) + nbsp + units[i+1].name
			}
		}
		return text
	}
	return "under 1" + nbsp + "s"
}

// ago is how long before now t was, or how far ahead it lies.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d <= -time.Second:
		return "in " + age(-d)
	case d < time.Second:
		return "now"
	}
	return age(d) + " ago"
}

// exact is a time for people who compare it with a log.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// stamp is a time for programs.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// size is a number of bytes: 312 bytes, 1.4 MB.
func size(n int64) string {
	if n < 1000 {
		return count(n, "byte", "bytes")
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if v /= 1000; v < 999.95 {
			break
		}
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + nbsp + unit
}

// position is a place as sailors write it: 41.39° N 2.17° E.
func position(lon, lat float64, digits int) string {
	return axis(lat, digits, "N", "S") + " " + axis(lon, digits, "E", "W")
}

func axis(v float64, digits int, positive, negative string) string {
	side := positive
	if v < 0 {
		side = negative
	}
	return strconv.FormatFloat(math.Abs(v), 'f', digits, 64) + "°" + nbsp + side
}

// abbreviate keeps the ends of a hash: 9f3c…e1.
func abbreviate(hash string) string {
	if len(hash) <= 12 {
		return hash
	}
	return hash[:6] + "…" + hash[len(hash)-4:]
}

// place is where a letter lies, as short as a row needs.
func place(l *dlq.Letter) string {
	switch {
	case l.LocatedBy == dlq.LocatedByTile && l.TileZ != nil && l.TileX != nil && l.TileY != nil:
		return fmt.Sprintf("tile %d/%d/%d", *l.TileZ, *l.TileX, *l.TileY)
	case !l.Located():
		return "no place"
	case l.LocatedBy == dlq.LocatedByGuess:
		return "guess: " + position(*l.AnchorLon, *l.AnchorLat, 2)
	}
	return position(*l.AnchorLon, *l.AnchorLat, 2)
}

// locatedBy is a way of locating in words.
func locatedBy(l *dlq.Letter) string {
	switch l.LocatedBy {
	case dlq.LocatedByGeometry:
		return "Its own geometry, in EPSG:4326"
	case dlq.LocatedByTile:
		return "Its tile or bounds; it brought no geometry that can be trusted"
	case dlq.LocatedByGuess:
		if l.GuessCRS != "" {
			return "A guess, as if in " + l.GuessCRS + "; no trusted geometry"
		}
		return "A guess; no trusted geometry"
	}
	return "No place: nothing in it says where it lies"
}

// bounds is a box in words.
func bounds(b []float64) string {
	if len(b) != 4 {
		return ""
	}
	return degrees(b[0]) + " " + degrees(b[1]) + " to " + degrees(b[2]) + " " + degrees(b[3])
}

// counters are tries, attempts and redrives as far as they say something; the
// same three words everywhere.
func counters(l *dlq.Letter) string {
	var parts []string
	if l.Tries != 1 || (l.Attempts <= 1 && l.Redrives == 0) {
		parts = append(parts, count(l.Tries, "try", "tries"))
	}
	if l.Attempts > 1 {
		parts = append(parts, count(l.Attempts, "attempt", "attempts"))
	}
	if l.Redrives > 0 {
		parts = append(parts, count(l.Redrives, "redrive", "redrives"))
	}
	return strings.Join(parts, " · ")
}

// happened is an action of the history in words.
func happened(e dlq.HistoryEntry) string {
	switch e.Action {
	case "dead_lettered":
		return "Dead-lettered"
	case "failed_again":
		return "Failed again"
	case "replayed":
		return "Replayed"
	case string(dlq.ActionRedrive):
		return "Redrive began"
	case string(dlq.ActionQuarantine):
		return "Quarantined"
	case string(dlq.ActionRelease):
		if e.FromStatus.Valid() && e.FromStatus != dlq.StatusQuarantined {
			return "Reopened"
		}
		return "Released from quarantine"
	case string(dlq.ActionAbandon):
		return "Abandoned"
	}
	text := strings.ReplaceAll(e.Action, "_", " ")
	if text == "" {
		return "Changed"
	}
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:]
}

// releaseWord is what release is called from a status.
func releaseWord(s dlq.Status) string {
	if s == dlq.StatusQuarantined {
		return "Release"
	}
	return "Reopen"
}

// pretty indents JSON that a letter brought; what is no JSON stays as it is.
func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// blank reports whether an object of a letter holds nothing.
func blank(raw json.RawMessage) bool {
	text := string(bytes.TrimSpace(raw))
	return text == "" || text == "null" || text == "{}" || text == "[]"
}

// A pair is one entry of a letter's object, its value as a line of text.
type pair struct{ Name, Value string }

// pairs are the entries of an object by name; nil where raw is no object.
func pairs(raw json.RawMessage) []pair {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	out := make([]pair, 0, len(object))
	for name, value := range object {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		out = append(out, pair{name, text})
	}
	slices.SortFunc(out, func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	return out
}

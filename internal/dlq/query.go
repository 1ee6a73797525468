package dlq

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// FilterNames are the parameters of a filter in a query string.
var FilterNames = []string{
	"bbox", "stage", "class", "status", "since", "until", "task", "source", "group", "crs",
	"code_version", "located_by", "located", "q", "prop", "work_key",
}

// ParseFilter reads a filter from a query string. A relative time, such as 24h,
// becomes absolute here, floored to the minute, so that every reader of one
// request sees the same. Names that are not of a filter are passed over: see
// UnknownNames. Its error is a *FieldError of kind ErrBadRequest.
func ParseFilter(v url.Values, now time.Time) (Filter, error) {
	p := filterParser{values: v, now: now}
	f := Filter{
		BBox:        p.box("bbox"),
		Stages:      words(&p, "stage", Stages),
		Classes:     words(&p, "class", Classes),
		Statuses:    words(&p, "status", Statuses),
		Since:       p.time("since"),
		Until:       p.time("until"),
		Tasks:       p.texts("task"),
		Sources:     p.texts("source"),
		Groups:      p.texts("group"),
		CRSs:        p.texts("crs"),
		CodeVersion: p.texts("code_version"),
		LocatedBy:   words(&p, "located_by", LocatedBys),
		Located:     p.bool("located"),
		Query:       p.text("q"),
		Props:       p.props("prop"),
		WorkKeys:    p.texts("work_key"),
	}
	if p.err == nil && f.Since != nil && f.Until != nil && !f.Since.Before(*f.Until) {
		p.err = BadRequest("until", "is not after since")
	}
	return f, p.err
}

// UnknownNames are the parameters that are neither a filter's nor in known: a
// misspelt filter must not select everything.
func UnknownNames(v url.Values, known ...string) []string {
	var unknown []string
	for name := range v {
		if !slices.Contains(FilterNames, name) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

type filterParser struct {
	values url.Values
	now    time.Time
	err    error // the first
}

func (p *filterParser) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = BadRequest(name, format, args...)
	}
}

// text is the one value of a name; an empty one counts as absent, as a form sends
// it.
func (p *filterParser) text(name string) string {
	all := p.texts(name)
	if len(all) > 1 {
		p.fail(name, "is given %d times; once is enough", len(all))
	}
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// maxValues bounds how often a name may be repeated.
const maxValues = 200

func (p *filterParser) texts(name string) []string {
	var out []string
	for _, text := range p.values[name] {
		if text == "" {
			continue
		}
		if clean := CleanText(text, 1000); clean != text {
			p.fail(name, "must be UTF-8 of at most 1000 characters, without NUL")
		}
		out = append(out, text)
	}
	if len(out) > maxValues {
		p.fail(name, "has more than %d values", maxValues)
	}
	return out
}

// listed is words as a sentence lists them.
func listed[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

func words[T ~string](p *filterParser, name string, allowed []T) []T {
	var out []T
	for _, text := range p.texts(name) {
		if !slices.Contains(allowed, T(text)) {
			p.fail(name, "%.60q is none of %s", text, listed(allowed))
			continue
		}
		if !slices.Contains(out, T(text)) {
			out = append(out, T(text))
		}
	}
	return out
}

func (p *filterParser) bool(name string) *bool {
	switch text := p.text(name); text {
	case "":
		return nil
	case "true", "false":
		b := text == "true"
		return &b
	default:
		p.fail(name, "%.60q is neither true nor false", text)
		return nil
	}
}

func (p *filterParser) time(name string) *time.Time {
	text := p.text(name)
	if text == "" {
		return nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		t = t.UTC()
		return &t
	}
	if t, ok := lastTime(text, p.now); ok {
		return &t
	}
	ago, err := parseAgo(text)
	if err != nil {
		p.fail(name, "%.60q is neither a time (2026-01-31T03:00:00Z as in RFC 3339, or 03:00 in UTC) nor how long ago (90m, 24h, 7d)", text)
		return nil
	}
	t := p.now.Add(-ago).UTC().Truncate(time.Minute)
	return &t
}

// lastTime reads a time of day, in UTC: the last time that it was.
func lastTime(text string, now time.Time) (time.Time, bool) {
	clock, err := time.Parse("15:04", text)
	if err != nil {
		return time.Time{}, false
	}
	y, m, d := now.UTC().Date()
	t := time.Date(y, m, d, clock.Hour(), clock.Minute(), 0, 0, time.UTC)
	if t.After(now) {
		t = t.AddDate(0, 0, -1)
	}
	return t, true
}

func parseAgo(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("days: %q", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration: %q", text)
	}
	return d, nil
}

func (p *filterParser) box(name string) *Box {
	text := p.text(name)
	if text == "" {
		return nil
	}
	box, err := ParseBox(text)
	if err != nil {
		p.fail(name, "%v", err)
		return nil
	}
	return box
}

// ParseBox reads west,south,east,north in degrees.
func ParseBox(text string) (*Box, error) {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(parts) != 4 {
		return nil, fmt.Errorf("wants west,south,east,north in degrees")
	}
	var n [4]float64
	for i, part := range parts {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || strings.ContainsAny(part, "xX") || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%.40q is not a number", part)
		}
		n[i] = v
	}
	box := &Box{West: n[0], South: n[1], East: n[2], North: n[3]}
	switch {
	case math.Abs(box.West) > 180 || math.Abs(box.East) > 180:
		return nil, fmt.Errorf("a longitude lies outside -180…180")
	case math.Abs(box.South) > 90 || math.Abs(box.North) > 90:
		return nil, fmt.Errorf("a latitude lies outside -90…90")
	case box.South > box.North:
		return nil, fmt.Errorf("south lies north of north")
	}
	return box, nil
}

func (b Box) String() string {
	var parts [4]string
	for i, v := range [4]float64{b.West, b.South, b.East, b.North} {
		parts[i] = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strings.Join(parts[:], ",")
}

// propRoots are what a Prop may begin with.
var propRoots = []string{"params", "labels", "payload"}

func (p *filterParser) props(name string) []Prop {
	var out []Prop
	for _, text := range p.texts(name) {
		path, value, ok := strings.Cut(text, ":")
		names := strings.Split(path, ".")
		if !ok || len(names) < 2 || slices.Contains(names, "") || !slices.Contains(propRoots, names[0]) {
			p.fail(name, "%.60q is not like params.resampling:cubic, labels.orbit:73 or payload.properties.name:x", text)
			continue
		}
		out = append(out, Prop{Root: names[0], Path: names[1:], Value: value})
	}
	return out
}

func (p Prop) String() string { return p.Root + "." + strings.Join(p.Path, ".") + ":" + p.Value }

// Values is the filter as a query string that ParseFilter reads back.
func (f Filter) Values() url.Values {
	v := url.Values{}
	if f.BBox != nil {
		v.Set("bbox", f.BBox.String())
	}
	addWords(v, "stage", f.Stages)
	addWords(v, "class", f.Classes)
	addWords(v, "status", f.Statuses)
	if f.Since != nil {
		v.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.Until != nil {
		v.Set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	addWords(v, "task", f.Tasks)
	addWords(v, "source", f.Sources)
	addWords(v, "group", f.Groups)
	addWords(v, "crs", f.CRSs)
	addWords(v, "code_version", f.CodeVersion)
	addWords(v, "located_by", f.LocatedBy)
	if f.Located != nil {
		v.Set("located", strconv.FormatBool(*f.Located))
	}
	if f.Query != "" {
		v.Set("q", f.Query)
	}
	for _, p := range f.Props {
		v.Add("prop", p.String())
	}
	addWords(v, "work_key", f.WorkKeys)
	return v
}

func addWords[T ~string](v url.Values, name string, values []T) {
	for _, value := range values {
		v.Add(name, string(value))
	}
}

// String is the cursor as it stands in a link.
func (c Cursor) String() string {
	text := strconv.FormatInt(c.FailedAt.UnixMicro(), 10) + "." + strconv.FormatInt(c.ID, 10)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// ParseCursor reads what String wrote.
func ParseCursor(text string) (*Cursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		micros, id, _ := strings.Cut(string(raw), ".")
		at, err1 := strconv.ParseInt(micros, 10, 64)
		n, err2 := strconv.ParseInt(id, 10, 64)
		if err1 == nil && err2 == nil && n > 0 && at > -1<<55 && at < 1<<55 {
			return &Cursor{FailedAt: time.UnixMicro(at).UTC(), ID: n}, nil
		}
	}
	return nil, BadRequest("after", "is not a cursor that a next link gave")
}

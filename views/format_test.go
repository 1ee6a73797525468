package views

import (
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"geodlq/internal/dlq"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct{ got, want string }{
		{number(0), "0"},
		{number(999), "999"},
		{number(1284), "1,284"},
		{number(int64(1234567)), "1,234,567"},
		{number(-1284), "−1,284"},
		{number(int64(math.MinInt64)), "−9,223,372,036,854,775,808"},
		{count(1, "try", "tries"), "1 try"},
		{count(0, "try", "tries"), "0 tries"},
		{percent(0, 0), "0%"},
		{percent(442, 1284), "34%"},
		{percent(1, 1000), "<1%"},
		{percent(999, 1000), ">99%"},
		{percent(5, 5), "100%"},
		{age(0), "now"},
		{age(-time.Hour), "now"},
		{age(40 * time.Second), "40 s"},
		{age(119 * time.Second), "1 min"},
		{age(2 * time.Hour), "2 h"},
		{age(400 * day), "400 d"},
		{span(76 * time.Hour), "3 d 4 h"},
		{span(3 * day), "3 d"},
		{span(3*day + 59*time.Minute), "3 d"},
		{span(90 * time.Minute), "1 h 30 min"},
		{span(90 * time.Second), "1 min"},
		{span(30 * time.Second), "30 s"},
		{span(0), "under 1 s"},
		{middle("k-1", 8), "k-1"},
		{middle("sha256:äöü-0001", 8), "sha2…001"},
		{ago(now.Add(-2*time.Minute), now), "2 min ago"},
		{ago(now, now), "now"},
		{ago(now.Add(5*time.Minute), now), "in 5 min"},
		{exact(now.In(time.FixedZone("", 3600))), "2026-11-30 09:12:00 UTC"},
		{stamp(now.In(time.FixedZone("", 3600))), "2026-11-30T09:12:00Z"},
		{size(0), "0 bytes"},
		{size(1), "1 byte"},
		{size(312), "312 bytes"},
		{size(65536), "65.5 kB"},
		{size(999_999), "1.0 MB"},
		{size(1_400_000), "1.4 MB"},
		{size(math.MaxInt64), "9223372.0 TB"},
		{position(2.17, 41.39, 2), "41.39° N 2.17° E"},
		{position(-179.98, -16.9, 2), "16.90° S 179.98° W"},
		{degrees(-10.2), "−10.2"},
		{degrees(180), "180"},
		{degrees(-0.0001), "0"},
		{abbreviate("9f3c"), "9f3c"},
		{abbreviate(strings.Repeat("0", 60) + "beef"), "000000…beef"},
		{bounds([]float64{-1, 2, 3, 4}), "−1 2 to 3 4"},
		{bounds([]float64{1}), ""},
		{firstLine("  one\ntwo"), "one"},
		{firstLine(""), "no error text"},
		{firstLine(strings.Repeat("ä", 301)), strings.Repeat("ä", 300) + "…"},
	} {
		if got := strings.ReplaceAll(tt.got, nbsp, " "); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestCountersSayOnlyWhatTellsSomething(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]dlq.Letter{
		"1 try":                            {Tries: 1, Attempts: 1},
		"6 tries":                          {Tries: 6, Attempts: 1},
		"3 attempts":                       {Tries: 1, Attempts: 3},
		"6 tries · 3 attempts · 1 redrive": {Tries: 6, Attempts: 3, Redrives: 1},
		"0 tries":                          {},
	} {
		if got := strings.ReplaceAll(counters(&l), nbsp, " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]dlq.Letter{
		"no place":                {LocatedBy: dlq.LocatedByNone},
		"41.39° N 2.17° E":        {LocatedBy: dlq.LocatedByGeometry, AnchorLon: ptr(2.17), AnchorLat: ptr(41.39)},
		"guess: 41.39° N 2.17° E": {LocatedBy: dlq.LocatedByGuess, AnchorLon: ptr(2.17), AnchorLat: ptr(41.39)},
		"tile 9/274/167":          {LocatedBy: dlq.LocatedByTile, AnchorLon: ptr(2.17), AnchorLat: ptr(41.39), TileZ: ptr(9), TileX: ptr(274), TileY: ptr(167)},
		"1.00° N 2.00° E":         {LocatedBy: dlq.LocatedByTile, AnchorLon: ptr(2.0), AnchorLat: ptr(1.0)},
	} {
		if got := strings.ReplaceAll(place(&l), nbsp, " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEachClassHasItsOwnGlyph(t *testing.T) {
	t.Parallel()
	seen := map[string]dlq.Class{}
	for _, c := range dlq.Classes {
		path := ClassGlyph(c)
		if was, taken := seen[path]; taken || path == "" {
			t.Errorf("%s has the glyph of %s", c, was)
		}
		seen[path] = c
	}
}

func fullFilter() dlq.Filter {
	return dlq.Filter{
		BBox: &dlq.Box{West: 170, South: -20, East: -170, North: 10.5}, Stages: []dlq.Stage{dlq.StageParse, dlq.StageCRS}, Classes: []dlq.Class{dlq.ClassOOM},
		Statuses: []dlq.Status{dlq.StatusPending}, Since: ptr(now.Add(-time.Hour)), Until: ptr(now), Tasks: []string{"a b"}, Sources: []string{"x"}, Groups: []string{"0123"},
		CRSs: []string{"EPSG:9999"}, CodeVersion: []string{"v1"}, LocatedBy: []dlq.LocatedBy{dlq.LocatedByGuess}, Located: ptr(true), Query: "100%",
		Props: []dlq.Prop{{Root: "labels", Path: []string{"a", "b"}, Value: "c:d"}}, WorkKeys: []string{"k#0"},
	}
}

func readBack(t *testing.T, href string) dlq.Filter {
	t.Helper()
	u, err := url.Parse(href)
	if err != nil || u.Path != "/" {
		t.Fatalf("%q: %v", href, err)
	}
	f, err := dlq.ParseFilter(u.Query(), now)
	if err != nil {
		t.Fatalf("%q: %v", href, err)
	}
	return f
}

func TestHomeReadsBack(t *testing.T) {
	t.Parallel()
	if got := Home(dlq.Filter{}); got != "/" {
		t.Errorf("Home of no filter = %q", got)
	}
	if got := readBack(t, Home(fullFilter())); !reflect.DeepEqual(got, fullFilter()) {
		t.Errorf("read back %+v", got)
	}
	cursor := &dlq.Cursor{FailedAt: now, ID: 7}
	u, _ := url.Parse(HomeAfter(fullFilter(), cursor))
	if got, err := dlq.ParseCursor(u.Query().Get("after")); err != nil || *got != *cursor {
		t.Errorf("cursor read back as %v, %v", got, err)
	}
}

// The chips are the whole filter: dropping each takes one condition away, and
// dropping all leaves none.
func TestChipsCoverTheFilter(t *testing.T) {
	t.Parallel()
	f := fullFilter()
	all := chips(f, nil, now)
	values := 0
	for _, list := range f.Values() {
		values += len(list)
	}
	if len(all) != values {
		t.Errorf("%d chips for %d conditions", len(all), values)
	}
	for _, c := range all {
		left := 0
		for _, list := range c.Without.Values() {
			left += len(list)
		}
		if left != values-1 {
			t.Errorf("without %s %s: %d conditions are left of %d", c.Name, c.Value, left, values)
		}
		readBack(t, Home(c.Without))
	}
	for n := len(all); n > 0; n-- {
		f = chips(f, nil, now)[0].Without
	}
	if got := Home(f); got != "/" {
		t.Errorf("with every chip dropped %q is left", got)
	}
	if !reflect.DeepEqual(all[0].Without.Stages, fullFilter().Stages) {
		t.Error("a chip changed the filter it came from")
	}
}

func TestToggling(t *testing.T) {
	t.Parallel()
	f := dlq.Filter{Classes: append(make([]dlq.Class, 0, 4), dlq.ClassOOM)}
	both := ToggleClass(f, dlq.ClassUnknown)
	other := ToggleClass(f, dlq.ClassCRSMismatch)
	if Home(both) != "/?class=oom&class=unknown" || Home(other) != "/?class=oom&class=crs_mismatch" {
		t.Errorf("toggled on: %s, %s", Home(both), Home(other))
	}
	if got := Home(ToggleClass(both, dlq.ClassOOM)); got != "/?class=unknown" {
		t.Errorf("toggled off: %s", got)
	}
	if got := Home(ToggleStage(ToggleStage(f, dlq.StageCRS), dlq.StageCRS)); got != Home(f) {
		t.Errorf("toggled twice: %s", got)
	}
	if got := Home(ToggleGroup(dlq.Filter{}, "ab")); got != "/?group=ab" {
		t.Errorf("group: %s", got)
	}
}

func TestTimeChoices(t *testing.T) {
	t.Parallel()
	for i, s := range spans {
		f := readBack(t, TriagePage{Filter: dlq.Filter{Until: ptr(now)}}.homeSince(s.Ago))
		for j, other := range spans {
			for _, later := range []time.Duration{0, 4 * time.Minute} {
				if got := other.current(f, now.Add(later)); got != (i == j) {
					t.Errorf("%s chosen %v ago: %s current = %v", s.Name, later, other.Name, got)
				}
			}
		}
	}
}

func TestWebLinks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"https://logs.example/a?b=c": true, "http://logs.example": true, "HTTPS://logs.example/": true,
		"javascript:alert(1)": false, "data:text/html,x": false, "//logs.example": false, "/letters/1": false, "https:": false,
		"mailto:a@b.example": false, "file:///etc": false, " https://logs.example": false, "": false, "https://a\nb": false,
	} {
		if _, ok := webLink(text); ok != want {
			t.Errorf("webLink(%q) = %v", text, ok)
		}
	}
}

func TestBarsStayVisible(t *testing.T) {
	t.Parallel()
	bars := classBars(TriagePage{}, &dlq.Charts{ByClass: []dlq.Count{{Name: "oom", Count: 1}, {Name: "unknown", Count: 1000, Located: 500}}})
	if len(bars) != len(dlq.Classes) || bars[0].Name != "unknown" || bars[1].Name != "oom" {
		t.Fatalf("%+v", bars)
	}
	if bars[0].solid() != "50.0%" || bars[0].hollow() != "50.0%" || bars[1].solid() != "0" || bars[1].hollow() != "1.5%" {
		t.Errorf("widths %s %s, %s %s", bars[0].solid(), bars[0].hollow(), bars[1].solid(), bars[1].hollow())
	}
}

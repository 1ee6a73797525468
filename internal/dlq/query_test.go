package dlq

import (
	"net/url"
	"reflect"
	"testing"
	"time"
)

func TestFilterReadsBackWhatItWrote(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC)
	v, _ := url.ParseQuery("bbox=170,-20,-170,10.5&stage=parse&stage=crs&class=oom&status=pending&since=24h&until=2026-03-01T12:00:00.5Z" +
		"&task=a%20b&source=x&group=0123&crs=EPSG:9999&code_version=v1&located_by=guess&located=true&q=100%25&prop=labels.a.b:c:d&work_key=k%230")
	f, err := ParseFilter(v, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 2, 28, 12, 30, 0, 0, time.UTC); !f.Since.Equal(want) {
		t.Errorf("since = %v, want %v: a relative time is floored to the minute", f.Since, want)
	}
	again, err := ParseFilter(f.Values(), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, again) {
		t.Errorf("read back %+v\nwant %+v", again, f)
	}
	v, _ = url.ParseQuery("bbox=1+2,3++4&since=03:00&until=13:00")
	if f, err := ParseFilter(v, now); err == nil || f.BBox == nil || *f.BBox != (Box{1, 2, 3, 4}) {
		t.Errorf("%+v, %v: 13:00 was yesterday, and so before 03:00", f, err)
	}
	v, _ = url.ParseQuery("since=03:00")
	if f, err := ParseFilter(v, now); err != nil || !f.Since.Equal(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", f, err)
	}
	v, _ = url.ParseQuery(f.Values().Encode())
	for _, name := range FilterNames {
		if !v.Has(name) {
			t.Errorf("the test leaves %s out", name)
		}
	}
}

func TestFilterRefuses(t *testing.T) {
	for _, query := range []string{
		"bbox=1,2,3", "bbox=1,2,3,x", "bbox=NaN,0,1,1", "bbox=0x1p3,0,9,1", "bbox=0,10,1,5", "bbox=-181,0,1,1", "bbox=0,0,1,91",
		"stage=Parse", "class=none", "status=open", "since=yesterday", "since=-5m", "since=1h&until=2h",
		"located=1", "located_by=x", "prop=a", "prop=params:x", "prop=other.a:b", "prop=params..a:b", "q=a&q=b",
		"task=%ff", "task=a%00",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := ParseFilter(v, time.Now()); err == nil {
			t.Errorf("%s: read as %+v, want an error", query, f)
		}
	}
}

func TestCursorReadsBack(t *testing.T) {
	want := Cursor{FailedAt: time.UnixMicro(1_700_000_000_123_456).UTC(), ID: 42}
	got, err := ParseCursor(want.String())
	if err != nil || *got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "x", "!!", "MTIz", "MTIzLjA"} {
		if c, err := ParseCursor(bad); err == nil {
			t.Errorf("%q: read as %+v, want an error", bad, c)
		}
	}
}

func TestGroupTitleTakesOutWhatDiffers(t *testing.T) {
	for text, want := range map[string]string{
		"POST sink: no answer in 10s":                                  "POST sink: no answer in …s",
		"Self-intersection at 11.25 51":                                "Self-intersection at …",
		"Self-intersection at -0.5 1e-7":                               "Self-intersection at …",
		"EPSG:4326 is claimed, but x = 1489199.33 lies outside":        "EPSG:… is claimed, but x = … lies outside",
		"job 7f3b2a10-0000-4000-8000-1234567890ab failed\nsecond":      "job … failed",
		`media type "application/pdf" is not supported`:                "media type … is not supported",
		"read tcp 127.0.0.1:1234->127.0.0.1:80: connection reset":      "read tcp …->… connection reset",
		"no CRS is claimed, so EPSG:4326 holds, but y = 95 is too far": "no CRS is claimed, so EPSG:… holds, but y = … is too far",
	} {
		if got := GroupTitle(text); got != want {
			t.Errorf("GroupTitle(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestEventKeysOfDifferentClientsNeverMeet(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][2]string{
		{DefaultSource, "a"}, {DefaultSource, "s:a"}, {"s", "a"}, {"s", "t:a"}, {"s:t", "a"}, {DefaultSource, "sha256:00"}, {DefaultSource, "default:a"},
	} {
		source, err := CheckSource("source", c[0])
		if c[0] == DefaultSource {
			source, err = DefaultSource, nil
		}
		if err != nil {
			continue // a source with a colon is refused
		}
		key, err := EventKey("key", source, c[1])
		if err != nil {
			t.Fatal(err)
		}
		if was, taken := seen[key]; taken {
			t.Errorf("%v and %s share the key %s", c, was, key)
		}
		seen[key] = c[0] + " " + c[1]
	}
	if key := ContentKey(DefaultSource, "a", "b", []byte("c")); seen[key] != "" {
		t.Error("a content key meets a client's")
	}
	if ContentKey("s", "ab", "c", nil) == ContentKey("s", "a", "bc", nil) {
		t.Error("parts of a content key run together")
	}
	for _, source := range []string{"default", "sha256", "a:b", "a#b", "a\nb", "\xff"} {
		if _, err := CheckSource("source", source); err == nil {
			t.Errorf("source %q was taken", source)
		}
	}
	for _, key := range []string{"", "a#0", "a\x00", "\xff"} {
		if _, err := EventKey("key", DefaultSource, key); err == nil {
			t.Errorf("key %q was taken", key)
		}
	}
}

func TestTransitionsAreThoseOfTheTable(t *testing.T) {
	allowed := map[Action][]Status{
		ActionRedrive:    {StatusPending},
		ActionQuarantine: {StatusPending},
		ActionRelease:    {StatusQuarantined, StatusReplayed, StatusAbandoned},
		ActionAbandon:    {StatusPending, StatusQuarantined},
	}
	for _, action := range Actions {
		for _, status := range Statuses {
			want := false
			for _, s := range allowed[action] {
				want = want || s == status
			}
			if got := action.Allowed(status); got != want {
				t.Errorf("%s of a %s letter: %v, want %v", action, status, got, want)
			}
		}
	}
}

func TestCleanTextIsFitForPostgres(t *testing.T) {
	if got := CleanText("a\x00b\xffc", 10); got != "a\uFFFDb\uFFFDc" {
		t.Errorf("got %q", got)
	}
	if got := CleanText("äöü", 2); got != "äö" {
		t.Errorf("got %q: the limit counts characters", got)
	}
}

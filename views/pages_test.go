package views

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"golang.org/x/net/html"

	"geodlq/internal/dlq"
)

var now = time.Date(2026, 11, 30, 9, 12, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func letter(change ...func(*dlq.Letter)) *dlq.Letter {
	l := &dlq.Letter{
		ID: 90410, WorkKey: "kataster-bb:flst-120051", Kind: dlq.KindEvent, EventID: ptr(int64(7)), Task: "cadastre_import", Source: "kataster-bb",
		Stage: dlq.StageCRS, Class: dlq.ClassCRSMismatch, Error: "EPSG:9999 is not a known CRS", Fingerprint: "0123456789abcdef",
		Tries: 1, Attempts: 1, LocatedBy: dlq.LocatedByNone, SrcCRS: "EPSG:9999", Status: dlq.StatusPending,
		FirstFailedAt: now.Add(-time.Hour), FailedAt: now.Add(-4 * time.Minute),
	}
	for _, c := range change {
		c(l)
	}
	return l
}

func withStatus(s dlq.Status) func(*dlq.Letter) { return func(l *dlq.Letter) { l.Status = s } }

func triagePage(change ...func(*TriagePage)) TriagePage {
	p := TriagePage{
		Depth: &dlq.Depth{Pending: 1284, Redriving: 3, Quarantined: 86, Unlocated: 442, InLastHour: 287, OutLastHour: 12, OldestOpen: ptr(now.Add(-76 * time.Hour)), InFlight: 5},
		Stats: &dlq.Stats{
			Total: 214, Located: 171,
			ByStage: []dlq.Count{{Name: "crs", Count: 214, Located: 171}},
			ByClass: []dlq.Count{{Name: "crs_mismatch", Count: 214, Located: 171}},
			Groups:  []dlq.Group{{Group: "0123456789abcdef", Title: "EPSG:… is not a known CRS", Stage: dlq.StageCRS, Class: dlq.ClassCRSMismatch, Count: 214, First: now.Add(-50 * time.Hour)}},
		},
		Letters: []dlq.Letter{*letter()}, Now: now, AnyEver: true,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func letterPage(l *dlq.Letter) LetterPage {
	return LetterPage{
		Letter:  l,
		Payload: PayloadView{Text: `{"type": "Point"}`, Size: 312, MediaType: "application/geo+json", SHA256: strings.Repeat("9f", 32)},
		History: []dlq.HistoryEntry{{At: now.Add(-time.Hour), Actor: "geodlq", Action: "dead_lettered", ToStatus: dlq.StatusPending, JobID: ptr(int64(48120))}},
		Now:     now,
	}
}

// render returns the page, its text with spaces collapsed, and its tree.
func render(t *testing.T, c templ.Component) (page, text string, tree *html.Node) {
	t.Helper()
	var b strings.Builder
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	tree, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	for n := range tree.Descendants() {
		if n.Type == html.TextNode {
			words.WriteString(n.Data)
		}
		if n.Type == html.ElementNode && slices.Contains([]string{"p", "li", "dt", "dd", "a", "button", "h1", "h2", "small"}, n.Data) {
			words.WriteByte(' ')
		}
	}
	return b.String(), strings.Join(strings.Fields(words.String()), " "), tree
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\n&amp;</textarea>"

// poison fills every text that v reaches; JSON becomes an object of it.
func poison(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(now.Add(-time.Hour)))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		raw, _ := json.Marshal(map[string]any{hostile: hostile, "list": []string{hostile}})
		v.SetBytes(raw)
	case v.Kind() == reflect.String:
		v.SetString(hostile)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		poison(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 4, 4))
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				poison(v.Field(i))
			}
		}
	case v.Kind() == reflect.Int, v.Kind() == reflect.Int64:
		v.SetInt(3)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
}

func poisoned[T any](change func(*T)) T {
	var v T
	poison(reflect.ValueOf(&v).Elem())
	if change != nil {
		change(&v)
	}
	return v
}

// pages are all pages in all their states, and with nothing but hostile text.
func pages() map[string]templ.Component {
	pages := map[string]templ.Component{
		"triage": Triage(triagePage()),
		"triage filtered, second page": Triage(triagePage(func(p *TriagePage) {
			p.Filter, p.Next, p.First, p.Demo = dlq.Filter{Classes: []dlq.Class{dlq.ClassOOM}}, "/?after=x", "/", &Demo{SinkDown: true, Region: "Iberia"}
		})),
		"triage, no match":             Triage(triagePage(func(p *TriagePage) { p.Letters, p.Filter = nil, dlq.Filter{Query: "x"} })),
		"triage, all resolved":         Triage(triagePage(func(p *TriagePage) { p.Letters = nil })),
		"triage, empty":                Triage(TriagePage{Depth: &dlq.Depth{}, Stats: &dlq.Stats{}, Now: now}),
		"triage without counts":        Triage(TriagePage{Now: now, AnyEver: true}),
		"triage of hostile letters":    Triage(poisoned(func(p *TriagePage) { p.Next, p.First = "/?after=x", "/" })),
		"no match of hostile filter":   Triage(poisoned(func(p *TriagePage) { p.Letters, p.First = nil, "" })),
		"letter of nothing":            Letter(LetterPage{Letter: &dlq.Letter{}, Now: now}),
		"hostile letter":               Letter(poisoned[LetterPage](nil)),
		"hostile letter, text payload": Letter(poisoned(func(p *LetterPage) { p.Payload.Missing, p.Payload.Hex = false, "" })),
		"hostile letter, hex payload":  Letter(poisoned(func(p *LetterPage) { p.Payload.Missing = false })),
		"hostile geotask":              Letter(poisoned(func(p *LetterPage) { p.Letter.Kind, p.Letter.Status = dlq.KindGeotask, dlq.StatusPending })),
		"hostile problem":              Problem(poisoned[ProblemPage](nil)),
		"hostile tile": Letter(poisoned(func(p *LetterPage) {
			p.Letter.LocatedBy, p.Letter.Bounds, p.Letter.LogURL = dlq.LocatedByTile, []float64{1, 2, 3, 4}, "https://logs.example/?q="+hostile
		})),
		"hostile guess": Letter(poisoned(func(p *LetterPage) {
			p.Letter.LocatedBy, p.Letter.LogURL, p.Letter.Labels = dlq.LocatedByGuess, "javascript:alert(1)", json.RawMessage(hostile)
		})),
	}
	for _, s := range dlq.Statuses {
		pages["letter "+string(s)] = Letter(letterPage(letter(withStatus(s))))
	}
	return pages
}

// A page needs no script, no inline style and no link that is not one of ours or
// of the web, whatever letters bring: the Content-Security-Policy would stop the
// first two only.
func TestPagesCarryNoForeignMarkup(t *testing.T) {
	t.Parallel()
	for name, page := range pages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, _, tree := render(t, page)
			for n := range tree.Descendants() {
				if n.Type != html.ElementNode {
					continue
				}
				switch n.Data {
				case "script", "style", "img", "iframe", "object", "base", "textarea":
					t.Errorf("a <%s>", n.Data)
				}
				for _, a := range n.Attr {
					if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
						t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
					}
					if a.Key != "href" && a.Key != "action" && a.Key != "formaction" {
						continue
					}
					u, err := url.Parse(a.Val)
					if err != nil || (u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https") {
						t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
					}
					if rel, _ := attr(n, "rel"); err == nil && u.Host != "" && rel != "noreferrer noopener" {
						t.Errorf("a link to elsewhere has rel=%q: %s", rel, a.Val)
					}
				}
			}
			if strings.Contains(name, "hostile") && !strings.Contains(source, "&lt;script&gt;alert(1)") {
				t.Error("the hostile text is not shown")
			}
		})
	}
}

func TestPagesCanBeNavigated(t *testing.T) {
	t.Parallel()
	for name, page := range pages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, tree := render(t, page)
			ids, labelled := map[string]bool{}, map[string]bool{}
			count := map[string]int{}
			for n := range tree.Descendants() {
				if n.Type != html.ElementNode {
					continue
				}
				count[n.Data]++
				if id, ok := attr(n, "id"); ok {
					if ids[id] {
						t.Errorf("two elements have id %q", id)
					}
					ids[id] = true
				}
				if to, ok := attr(n, "for"); ok {
					labelled[to] = true
				}
			}
			for _, element := range []string{"h1", "main", "header", "title"} {
				if count[element] != 1 {
					t.Errorf("%d <%s>, want one", count[element], element)
				}
			}
			for n := range tree.Descendants() {
				if n.Type != html.ElementNode {
					continue
				}
				if by, ok := attr(n, "aria-labelledby"); ok && !ids[by] {
					t.Errorf("labelled by %q, which is not there", by)
				}
				if kind, _ := attr(n, "type"); n.Data == "input" && kind != "hidden" {
					if id, _ := attr(n, "id"); !labelled[id] {
						t.Errorf("input %q has no label", id)
					}
				}
			}
		})
	}
}

func TestPagesTellTheirState(t *testing.T) {
	t.Parallel()
	geotask := func(l *dlq.Letter) { l.Kind, l.EventID, l.Source = dlq.KindGeotask, nil, "dem-mosaic" }
	tests := []struct {
		name string
		page templ.Component
		want []string // in the text
		has  []string // in the source
		not  []string // in neither
	}{
		{
			"the queue", Triage(triagePage()),
			[]string{"Whole queue", "1,284 pending", "+287", "12 replayed", "3 d 4 h", "442 32%", "214 open letters", "43 without a place", "EPSG:9999 is not a known CRS", "crs_mismatch", "no place", "1 try", "4 min"},
			[]string{`action="/letters/90410/redrive"`, `name="back" value="/"`, `href="/?class=crs_mismatch"`, `href="/?stage=crs"`, `href="/?group=0123456789abcdef"`, `href="/letters/90410"`, `title="failed 2026-11-30 09:08:00 UTC"`},
			[]string{"Clear all", "Older letters", "Demo"},
		},
		{
			"a filter", Triage(triagePage(func(p *TriagePage) {
				p.Filter = dlq.Filter{Classes: []dlq.Class{dlq.ClassCRSMismatch}, Query: "a b"}
				p.Next, p.First, p.Self = "/?after=next", "/?first", "/?after=self"
			})),
			[]string{"214 letters match", "Remove class crs_mismatch", "Remove text a b", "Clear all", "Older letters", "Newest letters"},
			[]string{`name="back" value="/?after=self"`, `href="/?after=next"`, `type="hidden" name="class" value="crs_mismatch"`, `name="q" value="a b"`, `href="/?q=a+b"`, `aria-current="true"`},
			nil,
		},
		{
			"letters that can't be redriven here", Triage(triagePage(func(p *TriagePage) {
				p.Letters = []dlq.Letter{*letter(geotask), *letter(withStatus(dlq.StatusQuarantined)), *letter(withStatus(dlq.StatusRedriving))}
			})),
			[]string{"quarantined", "redriving"}, nil, []string{"/redrive"},
		},
		{
			"no letter ever", Triage(TriagePage{Now: now, BaseURL: "http://geodlq.test"}),
			[]string{"No dead letters yet", "curl http://geodlq.test/v1/events"}, nil, []string{"Filters"},
		},
		{
			"no match", Triage(triagePage(func(p *TriagePage) {
				p.Letters, p.Stats, p.Filter = nil, &dlq.Stats{}, dlq.Filter{Stages: []dlq.Stage{dlq.StageParse}, Tasks: []string{"t"}}
			})),
			[]string{"0 letters match", "Drop a condition", "without stage parse", "without task t", "Clear all"},
			[]string{`href="/?task=t"`, `href="/?stage=parse"`}, nil,
		},
		{
			"all resolved", Triage(triagePage(func(p *TriagePage) { p.Letters, p.Stats = nil, &dlq.Stats{} })),
			[]string{"0 open letters", "All is resolved"}, []string{`href="/?status=replayed&amp;status=abandoned"`}, []string{"Drop a condition"},
		},
		{
			"the demo's sink down", Triage(triagePage(func(p *TriagePage) { p.Demo = &Demo{SinkDown: true, Region: "Iberia"} })),
			[]string{"The sink is down over Iberia.", "Bring the sink back"}, []string{`action="/demo/sink"`, `name="up" value="true"`}, nil,
		},
		{
			"the demo's sink up", Triage(triagePage(func(p *TriagePage) { p.Demo = &Demo{Region: "Iberia"} })),
			[]string{"Take it down again"}, []string{`name="up" value="false"`}, nil,
		},
		{
			"a pending event", Letter(letterPage(letter())),
			[]string{"crs_mismatch · cadastre_import", "pending", "kataster-bb:flst-120051", "EPSG:9999 is not a known CRS", "1 execution in the last run", "No place", "312 bytes", "Dead-lettered", "by geodlq", "job 48120", "1 h ago"},
			[]string{`formaction="/letters/90410/redrive"`, `formaction="/letters/90410/quarantine"`, `action="/letters/90410/abandon"`, `href="/v1/dead-letters/90410/payload"`, `href="/?group=0123456789abcdef"`, `datetime="2026-11-30T09:08:00Z"`},
			[]string{"/release"},
		},
		{
			"a quarantined event", Letter(letterPage(letter(withStatus(dlq.StatusQuarantined), func(l *dlq.Letter) { l.Reason = "broken buoy" }))),
			[]string{"Release", "Quarantined: broken buoy"}, []string{`formaction="/letters/90410/release"`, `action="/letters/90410/abandon"`}, []string{"/redrive", "/quarantine"},
		},
		{
			"a redriving event", Letter(letterPage(letter(withStatus(dlq.StatusRedriving)))),
			[]string{"A redrive is under way"}, nil, []string{"/redrive", "/quarantine", "/release", "/abandon"},
		},
		{
			"an abandoned event", Letter(letterPage(letter(withStatus(dlq.StatusAbandoned)))),
			[]string{"Reopen"}, []string{`formaction="/letters/90410/release"`}, []string{"/redrive", "/abandon"},
		},
		{
			"a pending geotask", Letter(letterPage(letter(geotask))),
			[]string{"its owner, dem-mosaic, has to redrive it", "Quarantine"}, nil, []string{"/redrive"},
		},
		{
			"a letter of which little is known", Letter(LetterPage{
				Letter:  letter(func(l *dlq.Letter) { l.ContextLost, l.OutcomeUnknown, l.Error = true, true, "" }),
				Payload: PayloadView{Missing: true, Why: "It was let go."}, Notice: "It could not be done.", NoticeBad: true, Now: now,
			}),
			[]string{"Context lost.", "Outcome unknown.", "It left no error text.", "No payload is kept. It was let go.", "Nothing is recorded.", "It could not be done."},
			[]string{`role="alert"`}, []string{"/payload"},
		},
		{
			"a log link", Letter(letterPage(letter(func(l *dlq.Letter) { l.LogURL = "https://logs.example/run/1?a=b" }))),
			[]string{"https://logs.example/run/1?a=b"}, []string{`href="https://logs.example/run/1?a=b" rel="noreferrer noopener"`}, nil,
		},
		{
			"a log link that is none", Letter(letterPage(letter(func(l *dlq.Letter) { l.LogURL = "javascript:alert(1)" }))),
			[]string{"javascript:alert(1)"}, nil, []string{`href="javascript`, "about:invalid"},
		},
		{
			"a problem", Problem(ProblemPage{Status: 400, Detail: "The filter can't be read.", Fields: []FieldProblem{{"since", "is no time"}}}),
			[]string{"400", "Bad Request", "The filter can't be read.", "since", "is no time", "Correct the address", "Go to the queue"}, nil, nil,
		},
		{"a problem of no known status", Problem(ProblemPage{Status: 599}), []string{"Something went wrong", "It has been logged"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			source, text, _ := render(t, tt.page)
			text = strings.ReplaceAll(text, nbsp, " ")
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q\n%s", want, text)
				}
			}
			for _, want := range tt.has {
				if !strings.Contains(source, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			for _, unwanted := range tt.not {
				if strings.Contains(source, unwanted) || strings.Contains(text, unwanted) {
					t.Errorf("the page has %q", unwanted)
				}
			}
		})
	}
}

func TestPagesArePure(t *testing.T) {
	t.Parallel()
	p := triagePage(func(p *TriagePage) {
		p.Filter = dlq.Filter{Classes: append(make([]dlq.Class, 0, 8), dlq.ClassOOM), Tasks: append(make([]string, 0, 8), "a", "b")}
	})
	first, _, _ := render(t, Triage(p))
	second, _, _ := render(t, Triage(p))
	if first != second {
		t.Error("rendered twice, a page differs")
	}
}

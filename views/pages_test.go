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
		Charts: &dlq.Charts{
			Total: 214, Located: 171,
			ByStage:  []dlq.Count{{Name: "crs", Count: 214, Located: 171}},
			ByClass:  []dlq.Count{{Name: "crs_mismatch", Count: 214, Located: 171}},
			Groups:   []dlq.Group{{Group: "0123456789abcdef", Title: "EPSG:… is not a known CRS", Stage: dlq.StageCRS, Class: dlq.ClassCRSMismatch, Count: 214, First: now.Add(-50 * time.Hour)}},
			BySource: []dlq.Count{{Name: "kataster-bb", Count: 214, Located: 171}}, ByStatus: []dlq.Count{{Name: "pending", Count: 214, Located: 171}},
			BucketSeconds: 1800, Buckets: []dlq.Bucket{
				{Start: now.Add(-72 * time.Minute), ByClass: map[dlq.Class]int64{dlq.ClassCRSMismatch: 14}},
				{Start: now.Add(-12 * time.Minute), ByClass: map[dlq.Class]int64{dlq.ClassCRSMismatch: 200}},
			},
		},
		Letters: []dlq.Letter{*letter()}, Now: now, AnyEver: true,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func redrive(change ...func(*dlq.Redrive)) RedrivePage {
	r := dlq.Redrive{
		ID: 42, Action: dlq.ActionRedrive, State: dlq.RedrivePreview, Filter: dlq.Filter{Classes: []dlq.Class{dlq.ClassUpstreamTimeout}},
		Matched: 214, Eligible: 210, ByClass: []dlq.Count{{Name: "upstream_timeout", Count: 210, Located: 200}}, ByStage: []dlq.Count{{Name: "downstream", Count: 210}},
		Refused: []dlq.Refusal{{Reason: "quarantined", Count: 4}}, BadData: 3, Counts: dlq.RedriveCounts{Waiting: 210},
		Actor: "m.ruiz", CreatedAt: now.Add(-time.Minute),
	}
	for _, c := range change {
		c(&r)
	}
	return RedrivePage{Redrive: r, Now: now, Items: []dlq.RedriveItem{{LetterID: 90410, State: dlq.ItemWaiting, WorkKey: "wfs-iberia:feat-1", Class: dlq.ClassUpstreamTimeout}}}
}

func inState(s dlq.RedriveState, c dlq.RedriveCounts) func(*dlq.Redrive) {
	return func(r *dlq.Redrive) { r.State, r.Counts, r.StartedAt = s, c, ptr(now.Add(-time.Minute)) }
}

func ofAction(a dlq.Action) func(*dlq.Redrive) { return func(r *dlq.Redrive) { r.Action = a } }

// ledgerPage has two sources today, and one of them the day before.
func ledgerPage(change ...func(*LedgerPage)) LedgerPage {
	today := dlq.Today(now)
	row := func(ago int, source string, c dlq.LedgerCounts, refused map[int]int64) dlq.LedgerDay {
		return dlq.LedgerDay{Day: today.AddDate(0, 0, -ago), Source: source, LedgerCounts: c, Refused: refused}
	}
	p := LedgerPage{
		Now:   now,
		Query: dlq.LedgerQuery{Since: today.AddDate(0, 0, -6), Until: today.AddDate(0, 0, 1)},
		Ledger: dlq.Ledger{
			Days: []dlq.LedgerDay{
				row(0, "default", dlq.LedgerCounts{Received: 10, Processed: 7, Dead: 2, InFlight: 1}, nil),
				row(0, "fleet-eu", dlq.LedgerCounts{Received: 1290, Processed: 1284, Dead: 4, Duplicates: 2}, map[int]int64{409: 3, 413: 1}),
				row(1, "default", dlq.LedgerCounts{Received: 1, Processed: 1}, nil),
			},
			Rows:    3,
			Totals:  dlq.LedgerDay{LedgerCounts: dlq.LedgerCounts{Received: 1301, Processed: 1292, Dead: 6, InFlight: 1, Duplicates: 2}, Refused: map[int]int64{409: 3, 413: 1}},
			Sources: []string{"default", "fleet-eu"},
			Check:   &dlq.LedgerCheck{CheckedAt: now.Add(-3 * time.Minute)},
		},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// missing is a unit that the tables do not have.
func missing(p *LedgerPage) {
	p.Ledger.Check.Mismatched = 9
	for range 9 {
		p.Ledger.Check.Mismatches = append(p.Ledger.Check.Mismatches, dlq.LedgerMismatch{
			Day: dlq.Today(now), Source: "fleet-eu", Column: "in_flight", Ledger: 1290, Tables: 1289,
		})
	}
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
		if n.Type == html.ElementNode && slices.Contains([]string{"p", "li", "dt", "dd", "a", "button", "h1", "h2", "small", "span", "form", "label"}, n.Data) {
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
	case v.Type() == reflect.TypeFor[map[int]int64]():
		v.Set(reflect.ValueOf(map[int]int64{409: 3, 999: 3}))
	case v.Type() == reflect.TypeFor[map[dlq.Class]int64]():
		v.Set(reflect.ValueOf(map[dlq.Class]int64{hostile: 3, dlq.ClassOOM: 3}))
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

// numbered gives each letter of a list its own id.
func numbered(letters []dlq.Letter) {
	for i := range letters {
		letters[i].ID = int64(3 + i)
	}
}

// pages are all pages in all their states, and with nothing but hostile text.
func pages() map[string]templ.Component {
	pages := map[string]templ.Component{
		"triage": Triage(triagePage()),
		"triage filtered, second page": Triage(triagePage(func(p *TriagePage) {
			p.Filter, p.Next, p.First, p.Demo = dlq.Filter{Classes: []dlq.Class{dlq.ClassOOM}}, "/?after=x", "/", &Demo{SinkDown: true, Region: "Iberia"}
		})),
		"triage, no match":      Triage(triagePage(func(p *TriagePage) { p.Letters, p.Filter = nil, dlq.Filter{Query: "x"} })),
		"triage, all resolved":  Triage(triagePage(func(p *TriagePage) { p.Letters = nil })),
		"triage, empty":         Triage(TriagePage{Depth: &dlq.Depth{}, Charts: &dlq.Charts{}, Now: now}),
		"triage without counts": Triage(TriagePage{Now: now, AnyEver: true}),
		"triage of hostile letters": Triage(poisoned(func(p *TriagePage) {
			p.Next, p.First, p.Self, p.Open = "/?after=x", "/", "", nil
			numbered(p.Letters)
		})),
		"hostile letter open": Triage(poisoned(func(p *TriagePage) {
			p.Next, p.First, p.Self, p.Undo.Until = "", "", "/?q="+url.QueryEscape(hostile), now.Add(time.Hour)
			numbered(p.Letters)
		})),
		"no match of hostile filter":   Triage(poisoned(func(p *TriagePage) { p.Letters, p.First, p.Self, p.Open = nil, "", "", nil })),
		"triage, letter open":          Triage(triagePage(func(p *TriagePage) { p.Open = ptr(letterPage(letter())) })),
		"triage, undo":                 Triage(triagePage(func(p *TriagePage) { p.Undo = &UndoOffer{90410, now.Add(9 * time.Second)} })),
		"hostile order":                Redrive(poisoned(func(p *RedrivePage) { p.Next, p.First = "/redrives/3?after=x", "/redrives/3" })),
		"hostile preview":              Redrive(poisoned(func(p *RedrivePage) { p.Next, p.First, p.Redrive.State = "", "", dlq.RedrivePreview })),
		"hostile orders":               Redrives(poisoned(func(p *RedrivesPage) { p.Next = "/redrives?after=x" })),
		"ledger":                       Ledger(ledgerPage()),
		"ledger of nothing":            Ledger(LedgerPage{Now: now}),
		"hostile ledger":               Ledger(poisoned[LedgerPage](nil)),
		"no orders":                    Redrives(RedrivesPage{Now: now}),
		"order of nothing":             Redrive(RedrivePage{Now: now}),
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
	for _, s := range []dlq.RedriveState{dlq.RedrivePreview, dlq.RedriveRunning, dlq.RedrivePaused, dlq.RedriveStopped, dlq.RedriveCancelled, dlq.RedriveDone} {
		for _, a := range dlq.Actions {
			pages["order "+string(a)+" "+string(s)] = Redrive(redrive(ofAction(a), func(r *dlq.Redrive) { r.State = s }))
		}
	}
	for _, s := range dlq.Statuses {
		pages["letter "+string(s)] = Letter(letterPage(letter(withStatus(s))))
	}
	return pages
}

// ours reports whether a script is one of ours: a file, and nothing in it.
func ours(n *html.Node) bool {
	src, _ := attr(n, "src")
	return strings.HasPrefix(src, "/static/") && n.FirstChild == nil
}

// A page has no script but ours, no inline style and no link that is not one of ours or
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
				if n.Data == "script" && ours(n) {
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
					name, _ := attr(n, "aria-label")
					if id, _ := attr(n, "id"); !labelled[id] && name == "" {
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
			[]string{`action="/letters/90410/redrive"`, `name="back" value="/"`, `href="/?class=crs_mismatch"`, `href="/?stage=crs"`, `href="/?group=0123456789abcdef"`, `href="/?letter=90410"`, `title="failed 2026-11-30 09:08:00 UTC"`},
			[]string{"Clear all", "Older letters", "Demo"},
		},
		{
			"a filter", Triage(triagePage(func(p *TriagePage) {
				p.Filter = dlq.Filter{Classes: []dlq.Class{dlq.ClassCRSMismatch}, Query: "a b"}
				p.Next, p.First, p.Self = "/?after=next", "/?first", "/?after=self"
			})),
			[]string{"214 match", "171 on the map", "Remove class crs_mismatch", "Remove text a b", "Clear all", "Older letters", "Newest letters"},
			[]string{`name="back" value="/?after=self"`, `href="/?after=next"`, `type="hidden" name="class" value="crs_mismatch"`, `name="q" value="a b"`, `href="/?q=a+b"`, `aria-current="true"`},
			nil,
		},
		{
			"letters that can't be redriven here", Triage(triagePage(func(p *TriagePage) {
				p.Letters = []dlq.Letter{*letter(geotask), *letter(withStatus(dlq.StatusQuarantined)), *letter(withStatus(dlq.StatusRedriving))}
			})),
			[]string{"quarantined", "redriving"}, nil, []string{`/redrive"`},
		},
		{
			"no letter ever", Triage(TriagePage{Now: now, BaseURL: "http://geodlq.test"}),
			[]string{"No dead letters yet", "curl http://geodlq.test/v1/events"}, nil, []string{"Filters"},
		},
		{
			"no match", Triage(triagePage(func(p *TriagePage) {
				p.Letters, p.Charts, p.Filter = nil, &dlq.Charts{}, dlq.Filter{Stages: []dlq.Stage{dlq.StageParse}, Tasks: []string{"t"}}
			})),
			[]string{"0 match", "Drop a condition", "without stage parse", "without task t", "Clear all"},
			[]string{`href="/?task=t"`, `href="/?stage=parse"`}, nil,
		},
		{
			"all resolved", Triage(triagePage(func(p *TriagePage) { p.Letters, p.Charts = nil, &dlq.Charts{} })),
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
			[]string{`/release"`},
		},
		{
			"a quarantined event", Letter(letterPage(letter(withStatus(dlq.StatusQuarantined), func(l *dlq.Letter) { l.Reason = "broken buoy" }))),
			[]string{"Release", "Quarantined: broken buoy"}, []string{`formaction="/letters/90410/release"`, `action="/letters/90410/abandon"`}, []string{`/redrive"`, `/quarantine"`},
		},
		{
			"a redriving event", Letter(letterPage(letter(withStatus(dlq.StatusRedriving)))),
			[]string{"A redrive is under way"}, nil, []string{`/redrive"`, `/quarantine"`, `/release"`, `/abandon"`},
		},
		{
			"an abandoned event", Letter(letterPage(letter(withStatus(dlq.StatusAbandoned)))),
			[]string{"Reopen"}, []string{`formaction="/letters/90410/release"`}, []string{`/redrive"`, `/abandon"`},
		},
		{
			"a pending geotask", Letter(letterPage(letter(geotask))),
			[]string{"its owner, dem-mosaic, has to redrive it", "Quarantine"}, nil, []string{`/redrive"`},
		},
		{
			"a letter of which little is known", Letter(LetterPage{
				Letter:  letter(func(l *dlq.Letter) { l.ContextLost, l.OutcomeUnknown, l.Error = true, true, "" }),
				Payload: PayloadView{Missing: true, Title: "No payload is kept.", Why: "It was let go."}, Notice: "It could not be done.", NoticeBad: true, Now: now,
			}),
			[]string{"Context lost.", "Outcome unknown.", "It left no error text.", "No payload is kept. It was let go.", "Nothing is recorded.", "It could not be done."},
			[]string{`role="alert"`}, []string{"/payload"},
		},
		{
			"a letter whose payload is lost", Letter(LetterPage{
				Letter: letter(), Now: now,
				Payload: PayloadView{Missing: true, Lost: true, Title: "It is missing.", Why: "Somebody deleted it.", Size: 312, MediaType: "application/geo+json", SHA256: strings.Repeat("9f", 32)},
			}),
			[]string{"312 bytes · application/geo+json · sha256 9f9f9f…9f9f", "It is missing. Somebody deleted it."},
			[]string{`<p class="aside warn">`}, []string{"/payload", "download"},
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
			"an unfiltered queue is acted on as a whole only on purpose", Triage(triagePage()),
			[]string{"Act on all 214…", "this is the whole queue", "Redrive all 214…"}, []string{`name="everything" value="true"`}, nil,
		},
		{
			"what matches is acted on", Triage(triagePage(func(p *TriagePage) { p.Filter = dlq.Filter{Query: "a b"} })),
			[]string{"Redrive 214…", "Quarantine…", "Abandon 214…", "CSV", "GeoJSON"},
			[]string{`action="/redrives"`, `name="filter" value="q=a+b"`, `name="action" value="redrive"`, `href="/export.csv?q=a+b"`, `form="ticked"`, `formaction="/letters/90410/quarantine"`},
			[]string{"everything", "Release…"},
		},
		{
			"quarantined letters are released", Triage(triagePage(func(p *TriagePage) {
				p.Filter = dlq.Filter{Statuses: []dlq.Status{dlq.StatusQuarantined}, Query: "x"}
			})),
			[]string{"Release 214…", "Abandon 214…"}, nil, []string{"Redrive 214", "Quarantine…"},
		},
		{
			"resolved letters are reopened", Triage(triagePage(func(p *TriagePage) {
				p.Filter = dlq.Filter{Statuses: []dlq.Status{dlq.StatusAbandoned}, Query: "x"}
			})),
			[]string{"Reopen 214…"}, nil, []string{"Redrive 214", "Abandon 214"},
		},
		{
			"a box, and where the map stands", Triage(triagePage(func(p *TriagePage) {
				p.Filter = dlq.Filter{BBox: &dlq.Box{West: 170, South: -30, East: -170, North: 0}}
				p.View = "4.00/1.0/179.0"
			})),
			[]string{"Box: 170 −30 −170 0"},
			[]string{`value="170,-30,-170,0"`, `href="/?bbox=170%2C-30%2C-170%2C0&amp;class=crs_mismatch&amp;map=4.00%2F1.0%2F179.0"`, `href="/?map=4.00%2F1.0%2F179.0"`, "&#34;box&#34;:[170,-30,-170,0]", "/tiles/{z}/{x}/{y}.mvt?bbox=170%2C-30%2C-170%2C0", "&#34;about&#34;:&#34;/tiles.json?bbox=170%2C-30%2C-170%2C0&#34;"},
			nil,
		},
		{
			"a letter open beside the map", Triage(triagePage(func(p *TriagePage) {
				p.Letters = []dlq.Letter{*letter(func(l *dlq.Letter) { l.ID = 3 }), *letter(), *letter(func(l *dlq.Letter) { l.ID = 2 })}
				p.Open = ptr(letterPage(letter(func(l *dlq.Letter) { l.AnchorLon, l.AnchorLat = ptr(2.17), ptr(41.39) })))
				p.Self = "/?q=x&letter=90410&undo=90410"
			})),
			[]string{"← List", "Newer", "Older", "What went wrong", "Own page"},
			[]string{`href="/?q=x"`, `href="/?letter=3&amp;q=x"`, `href="/?letter=2&amp;q=x"`, "&#34;anchor&#34;:[2.17,41.39]", `name="back" value="/?letter=90410&amp;q=x"`},
			nil,
		},
		{
			"a redrive that can be taken back", Triage(triagePage(func(p *TriagePage) { p.Undo, p.Self = &UndoOffer{90410, now.Add(9 * time.Second)}, "/?q=x&undo=90410" })),
			[]string{"Redrive of letter 90410 ordered.", "It runs in 9 s", "every 5 s", "Undo"}, []string{`action="/letters/90410/undo"`, `name="back" value="/?q=x"`}, nil,
		},
		{
			"a redrive that can't be taken back any more", Triage(triagePage(func(p *TriagePage) { p.Undo = &UndoOffer{90410, now} })),
			nil, nil, []string{"/undo"},
		},
		{
			"a preview", Redrive(redrive()),
			[]string{"Redrive 42", "preview", "210 of 214 letters", "3 are bad data and will fail again", "4 quarantined", "Start redrive of 210", "kept until 09:26 UTC", "class upstream_timeout"},
			[]string{`action="/redrives/42/start"`, `action="/redrives/42/cancel"`, `name="reason"`, "/redrives/42/tiles/{z}/{x}/{y}.mvt"}, []string{"/pause", "&#34;running&#34;"},
		},
		{
			"a preview of nothing", Redrive(redrive(func(r *dlq.Redrive) { r.Eligible = 0 })),
			[]string{"None of them allows it now."}, []string{"disabled"}, nil,
		},
		{
			"a preview of another action", Redrive(redrive(ofAction(dlq.ActionQuarantine))),
			[]string{"Quarantine order 42", "Quarantine 210 letters"}, nil, []string{"bad data", "Start redrive"},
		},
		{
			"a running order", Redrive(redrive(inState(dlq.RedriveRunning, dlq.RedriveCounts{Replayed: 100, Failed: 3, Running: 8, Waiting: 99}))),
			[]string{"running", "103 of 210 over", "100 replayed", "3 failed again", "8 running", "99 waiting", "about 1 min left"},
			[]string{`action="/redrives/42/pause"`, `action="/redrives/42/cancel"`, `href="/redrives/42?state=failed"`, "&#34;running&#34;:true"}, []string{"/start"},
		},
		{
			"a paused order", Redrive(redrive(inState(dlq.RedrivePaused, dlq.RedriveCounts{Waiting: 210}))),
			[]string{"paused"}, []string{`action="/redrives/42/resume"`, `action="/redrives/42/cancel"`}, []string{"/pause"},
		},
		{
			"an order that is done", Redrive(redrive(ofAction(dlq.ActionQuarantine), inState(dlq.RedriveDone, dlq.RedriveCounts{Replayed: 210}))),
			[]string{"done", "210 quarantined", "Back to the queue"}, nil, []string{"/cancel", "/resume"},
		},
		{
			"the orders", Redrives(RedrivesPage{Redrives: []dlq.Redrive{redrive().Redrive, redrive(ofAction(dlq.ActionAbandon), inState(dlq.RedriveDone, dlq.RedriveCounts{Replayed: 209, Skipped: 1})).Redrive}, Next: "/redrives?after=x", Now: now}),
			[]string{"Redrive 42", "210 of 214 would go", "Abandon order 42", "209 abandoned, 1 skipped", "Older orders"}, []string{`href="/redrives/42"`, `href="/redrives?after=x"`}, nil,
		},
		{"no orders yet", Redrives(RedrivesPage{Now: now}), []string{"No order yet"}, nil, nil},
		{
			"the ledger", Ledger(ledgerPage()),
			[]string{"adds up, checked 3 min ago", "Received 1,301", "=Processed 1,292", "+Dead 6", "30 November 2026 Monday", "1,290", "3 × 409", "409 the key was used for another body; 413 too large", "All 3 rows"},
			[]string{`href="/ledger.csv"`, `href="/ledger?source=fleet-eu"`, `name="since" value="2026-11-24"`, `<option value="fleet-eu">`},
			[]string{"does not add up", "Reports", "Spooled", "not listed"},
		},
		{
			"the ledger that does not add up", Ledger(ledgerPage(missing)),
			[]string{"does not add up", "9 figures differ from the tables", "in flight1,2901,289−1", "1 more", "≠ tables"},
			[]string{`role="alert"`, `href="/ledger?since=2026-11-30&amp;source=fleet-eu&amp;until=2026-12-01"`}, []string{"adds up, checked"},
		},
		{
			"the ledger, not checked for long", Ledger(ledgerPage(func(p *LedgerPage) { p.Ledger.Check.CheckedAt = now.Add(-3 * time.Hour) })),
			[]string{"not checked since 3 h ago"}, nil, []string{"adds up, checked"},
		},
		{
			"the ledger with a spool and reports", Ledger(ledgerPage(func(p *LedgerPage) {
				p.Ledger.Totals.Spooled, p.Ledger.Totals.Reports, p.Ledger.Rows = 5, 3, 700
			})),
			[]string{"+Spooled 5", "Reports", "Apart by −5", "697 of them are not listed"}, nil, nil,
		},
		{
			"a ledger of nothing", Ledger(ledgerPage(func(p *LedgerPage) {
				p.Ledger.Days, p.Query.Sources = nil, []string{"buoy"}
			})),
			[]string{"Nothing was received or refused of this source in the days 24 November 2026 to 30 November 2026."}, []string{`href="/ledger"`}, []string{"<tfoot"},
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

// A page of fifty letters stays small: it is asked for at each click.
func TestATriagePageStaysSmall(t *testing.T) {
	t.Parallel()
	p := triagePage(func(p *TriagePage) {
		p.Filter = dlq.Filter{BBox: &dlq.Box{West: -10.25, South: 35.85, East: 4.45, North: 44.15}, Classes: []dlq.Class{dlq.ClassUpstreamTimeout}, Since: ptr(now.Add(-time.Hour))}
		p.View, p.Letters = "5.32/40.123/-3.456", nil
		for i := range 50 {
			p.Letters = append(p.Letters, *letter(func(l *dlq.Letter) { l.ID = int64(90000 + i) }))
		}
		for i := range 120 {
			p.Charts.Buckets = append(p.Charts.Buckets, dlq.Bucket{Start: now.Add(time.Duration(i) * 30 * time.Minute), ByClass: map[dlq.Class]int64{dlq.ClassOOM: int64(i), dlq.ClassUnknown: 3, dlq.ClassCRSMismatch: 7}})
		}
	})
	if source, _, _ := render(t, Triage(p)); len(source) > 100_000 {
		t.Errorf("%d bytes", len(source))
	}
}

func TestTheTimelineKeepsToItsBox(t *testing.T) {
	t.Parallel()
	c := &dlq.Charts{BucketSeconds: 3600, Buckets: []dlq.Bucket{
		{Start: now, ByClass: map[dlq.Class]int64{dlq.ClassOOM: 1, dlq.ClassUnknown: 3}},
		{Start: now.Add(3 * time.Hour), ByClass: map[dlq.Class]int64{dlq.ClassOOM: 2}},
	}}
	v := timelineOf(c, dlq.Filter{Since: ptr(now.Add(-time.Hour)), Until: ptr(now.Add(2 * time.Hour))})
	if v.Peak != 4 || v.Total != 6 || !v.End.Equal(now.Add(4*time.Hour)) {
		t.Errorf("%+v", v)
	}
	if v.Sel == nil || v.Sel.X != "0.0" || v.Sel.W != "500.0" {
		t.Errorf("selection %+v", v.Sel)
	}
	if len(v.Layers) != 2 || v.Layers[0].Class != dlq.ClassOOM || !strings.HasPrefix(v.Layers[0].Path, "M15.0 75.0h220.0v25.0h-220.0zM765.0 50.0") {
		t.Errorf("%+v", v.Layers)
	}
	if timelineOf(&dlq.Charts{}, dlq.Filter{}) != nil || timelineOf(nil, dlq.Filter{}) != nil {
		t.Error("a timeline of nothing")
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is a real Chromium that all browser tests share, each with a profile of
// its own.
var browser = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("no chromium; make test installs it")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("use-angle", "swiftshader"), chromedp.Flag("enable-unsafe-swiftshader", true), chromedp.Flag("ignore-gpu-blocklist", true),
		chromedp.Flag("disable-gpu", false), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true),
		// A mouse, which a headless one is without: @media (hover) and (pointer: fine).
		chromedp.Flag("blink-settings", "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"),
	)
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx)
})

// page is a tab as an operator uses it: by pointer and keyboard.
type page struct {
	t            testing.TB
	ctx          context.Context
	s            *server
	interactions int
	mu           sync.Mutex
	complaints   []string // of the console: errors, and what the CSP refused
}

// wantsBrowser leaves a test out of a short run.
func wantsBrowser(t testing.TB) {
	if testing.Short() {
		t.Skip("a browser test")
	}
}

func (s *server) newPage(t testing.TB, width, height int64) *page {
	t.Helper()
	wantsBrowser(t)
	parent, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, cancelTime := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancelTime)
	p := &page{t: t, ctx: ctx, s: s}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	tell(p, log.Enable, cdp.Empty{})
	tell(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	return p
}

// tell sends the browser a command of its protocol.
func tell[P, R any](p *page, c cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, c, params); err != nil {
		p.t.Fatalf("browser: %v", err)
	}
}

func (p *page) listen(event any) {
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complain("exception: " + event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError && len(event.Args) > 0 {
			p.complain("console: " + string(event.Args[0].Value) + event.Args[0].Description)
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError || strings.Contains(event.Entry.Text, "Content Security Policy") {
			p.complain("log: " + event.Entry.Text + " " + event.Entry.URL)
		}
	}
}

func (p *page) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, text)
}

// clean fails the test if the console holds complaints.
func (p *page) clean() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.complaints {
		p.t.Errorf("the browser complains: %s", text)
	}
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatalf("browser: %v\n%v", err, p.complaints)
	}
}

func (p *page) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.s.url + path))
}

// js reads from the page; no test changes a page by it. A page that is just being
// left has nothing to read: then the next one is asked.
func js[T any](p *page, expression string) T {
	p.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, func(e *runtime.EvaluateParams) { e.AwaitPromise = new(true) }))
		if err == nil {
			return value
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %v", expression, err)
		}
	}
}

func (p *page) text(selector string) string {
	p.t.Helper()
	return js[string](p, fmt.Sprintf("document.querySelector(%q)?.innerText.replaceAll('\\u00a0', ' ') ?? ''", selector))
}

func (p *page) has(selector string) bool {
	p.t.Helper()
	return js[bool](p, fmt.Sprintf("document.querySelector(%q) !== null", selector))
}

func (p *page) until(what string, cond func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			where := js[string](p, "location.href + '\\n' + document.body.innerText.slice(0, 1500)")
			p.shot("timeout")
			p.t.Fatalf("not within half a minute: %s\n%s\n%v", what, where, p.complaints)
		}
	}
}

// shot saves a picture where GEODLQ_SHOTS says.
func (p *page) shot(name string) {
	dir := os.Getenv("GEODLQ_SHOTS")
	if dir == "" {
		return
	}
	if shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot()); err == nil {
		_ = os.WriteFile(dir+"/"+strings.ReplaceAll(p.t.Name(), "/", "-")+"-"+name+".png", shot, 0o644)
	}
}

type point struct{ X, Y float64 }

// middle is where the middle of what the selector finds is seen, scrolled into view
// as a person would.
func (p *page) middle(selector string) point {
	p.t.Helper()
	var at *point
	p.until(selector+" to be there", func() bool {
		at = js[*point](p, fmt.Sprintf(`(e => { if (!e) return null; e.scrollIntoView({block: "center", behavior: "instant"});
			const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })(document.querySelector(%q))`, selector))
		return at != nil
	})
	return *at
}

func (p *page) mouse(kind input.DispatchMouseEventType, x, y float64, modifiers int64) {
	p.t.Helper()
	e := input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Modifiers: modifiers, Button: input.MouseButtonLeft}
	if kind == input.DispatchMouseEventTypeMouseMoved {
		e.Buttons = 1
	} else {
		e.ClickCount = 1
	}
	tell(p, input.DispatchMouseEvent, e)
}

func (p *page) hover(x, y float64) {
	p.t.Helper()
	tell(p, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y})
}

// color is what a point of the page looks like.
func (p *page) color(x, y float64) color.Color {
	p.t.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		p.t.Fatal(err)
	}
	return picture.At(int(x), int(y))
}

// click presses the middle of what the selector finds, with the pointer.
func (p *page) click(selector string) {
	p.t.Helper()
	p.interactions++
	at := p.middle(selector)
	p.hover(at.X, at.Y)
	p.clickAt(at)
}

func (p *page) clickAt(at point) {
	p.t.Helper()
	p.mouse(input.DispatchMouseEventTypeMousePressed, at.X, at.Y, 0)
	p.mouse(input.DispatchMouseEventTypeMouseReleased, at.X, at.Y, 0)
}

func (p *page) press(key string) {
	p.t.Helper()
	p.interactions++
	p.do(chromedp.KeyEvent(key))
}

const shift = 8 // of the modifiers of a pointer event

// drag moves the pointer over the page with the button down.
func (p *page) drag(x1, y1, x2, y2 float64, modifiers int64) {
	p.t.Helper()
	p.interactions++
	p.hover(x1, y1)
	p.mouse(input.DispatchMouseEventTypeMousePressed, x1, y1, modifiers)
	for step := 1.0; step <= 10; step++ {
		p.mouse(input.DispatchMouseEventTypeMouseMoved, x1+(x2-x1)*step/10, y1+(y2-y1)*step/10, modifiers)
	}
	p.mouse(input.DispatchMouseEventTypeMouseReleased, x2, y2, modifiers)
}

// query are the parameters of the page's URL.
func (p *page) query() url.Values {
	p.t.Helper()
	v, err := url.ParseQuery(js[string](p, "location.search.slice(1)"))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// mapReady waits for the map to be idle.
func (p *page) mapReady() {
	p.t.Helper()
	p.until("the map to be drawn", func() bool { return p.has("#map.idle canvas") })
}

// pixel is where a place lies on the page, by the map's view in the URL.
func (p *page) pixel(lon, lat float64) (x, y float64) {
	p.t.Helper()
	rect := js[struct{ X, Y, W, H float64 }](p, "(r => ({X: r.x, Y: r.y, W: r.width, H: r.height}))(document.querySelector('#map canvas').getBoundingClientRect())")
	view := strings.Split(p.query().Get("map"), "/")
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			p.t.Fatalf("view %v: %v", view, err)
		}
		return v
	}
	if len(view) != 3 {
		p.t.Fatalf("view %v", view)
	}
	world := 512 * math.Exp2(number(view[0]))
	mercator := func(lon, lat float64) (float64, float64) {
		return (lon + 180) / 360 * world, (0.5 - math.Log(math.Tan(math.Pi/4+lat*math.Pi/360))/(2*math.Pi)) * world
	}
	cx, cy := mercator(number(view[2]), number(view[1]))
	px, py := mercator(lon, lat)
	return rect.X + rect.W/2 + px - cx, rect.Y + rect.H/2 + py - cy
}

// incident makes an outage over a box among others, all by way of the door: letters
// of the same class just outside it, of other classes inside it.
func (s *server) incident(sink *testSink, in box) (expected []string) {
	s.t.Helper()
	sink.status(503)
	var keys []string
	event := func(key, geometry string) {
		s.post(key, geometry)
		keys = append(keys, key)
	}
	point := func(lon, lat float64) string {
		return fmt.Sprintf(`{"type":"Point","coordinates":[%.4f,%.4f]}`, lon, lat)
	}
	for i := range 60 {
		key := fmt.Sprintf("in-%02d", i)
		event(key, point(in.w+0.4+math.Mod(float64(i)*0.37, in.e-in.w-0.8), in.s+0.4+math.Mod(float64(i)*0.23, in.n-in.s-0.8)))
		expected = append(expected, key)
	}
	for i := range 120 {
		event(fmt.Sprintf("east-%03d", i), point(in.e+0.6+float64(i%40)*0.3, in.s+float64(i%30)*0.3))
		event(fmt.Sprintf("north-%03d", i), point(in.w+float64(i%40)*0.3, in.n+0.6+float64(i%30)*0.3))
	}
	for i := range 130 {
		lon, lat := in.w+1+float64(i%25)*0.3, in.s+1+float64(i%15)*0.3
		event(fmt.Sprintf("bowtie-%03d", i), fmt.Sprintf(`{"type":"Polygon","coordinates":[[[%.3f,%.3f],[%.3f,%.3f],[%.3f,%.3f],[%.3f,%.3f],[%.3f,%.3f]]]}`,
			lon, lat, lon+0.1, lat+0.1, lon+0.1, lat, lon, lat+0.1, lon, lat))
		event(fmt.Sprintf("cut-%03d", i), `{"type":"Point","coordinates":[1,`)
	}
	for _, key := range keys {
		s.settle(key)
	}
	return expected
}

func TestAnOperatorRedrivesAnOutageByDrawingABox(t *testing.T) {
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	outage := box{-9.5, 36, 3.5, 43.5}
	expected := s.incident(sink, outage)
	sink.status(200)
	asked, _ := sink.taken()

	p := s.newPage(t, 1440, 900)
	p.open("/?map=3.6/44/5")
	p.mapReady()
	p.press("b")
	x1, y1 := p.pixel(outage.w, outage.n)
	x2, y2 := p.pixel(outage.e, outage.s)
	p.drag(x1, y1, x2, y2, 0)
	p.until("the box to be in the URL", func() bool { return p.query().Get("bbox") != "" })
	p.shot("box")
	p.click(`#filters a[href*="class=upstream_error"]`)
	p.until("the class to be in the URL", func() bool { return p.query().Get("class") == "upstream_error" })
	p.until("the list to follow", func() bool { return strings.Contains(p.text("#list .actions"), "60…") })
	p.click(`#all button[value="redrive"]`)
	p.until("the preview", func() bool { return p.has(`form[action$="/start"] button`) })
	p.shot("preview")
	// Twenty arrive between the preview and the click.
	sink.status(503)
	for i := range 20 {
		key := fmt.Sprintf("late-%02d", i)
		s.post(key, `{"type":"Point","coordinates":[-3.7,40.4]}`)
		s.settle(key)
	}
	sink.status(200)
	before, _ := sink.taken()
	p.click(`form[action$="/start"] button`)
	p.until("the order to be done", func() bool {
		return s.count("select count(*) from redrives where state = 'done'") == 1 || s.orderState(1.0)["state"] == "done"
	})
	taken, _ := sink.taken()
	got := slices.Clone(taken[len(before):])
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		t.Errorf("the sink received %d keys, want the %d of the outage:\n%v", len(got), len(expected), got)
	}
	if len(asked) == 0 || p.interactions > 5 {
		t.Errorf("%d interactions", p.interactions)
	}
	p.until("the page to say so", func() bool {
		return strings.Contains(p.text("#orderhead"), "done") || strings.Contains(p.text("#orderhead"), "Done")
	})
	p.shot("done")
	t.Logf("%d letters redriven in %d interactions", len(got), p.interactions)
	p.clean()
}

func TestABoxIsDrawnByShiftAcrossTheAntimeridianAndSharedByItsURL(t *testing.T) {
	s := startServer(t, nil)
	for i, lon := range []float64{178, 179.5, -179.5, -178, 170, -170, 0} {
		s.report(map[string]any{"work_key": fmt.Sprintf("k%d", i), "geometry": map[string]any{"type": "Point", "coordinates": []float64{lon, -17}}}, "")
	}
	p := s.newPage(t, 1440, 900)
	p.open("/?map=5/-17/180")
	p.mapReady()
	x1, y1 := p.pixel(177, -15)
	x2, y2 := p.pixel(183, -19)
	p.drag(x1, y1, x2, y2, shift)
	p.until("four letters to match", func() bool { return strings.Contains(p.text("#list .matches"), "4 ") })
	b := p.query().Get("bbox")
	parts := strings.Split(b, ",")
	if len(parts) != 4 || !strings.HasPrefix(parts[2], "-17") {
		t.Errorf("bbox %s does not cross the antimeridian", b)
	}
	p.click("#rows .row a")
	p.until("the letter to be open", func() bool { return p.has("#open article") })
	p.mapReady()
	shared := p.query()
	other := s.newPage(t, 1440, 900)
	other.open("/?" + shared.Encode())
	other.mapReady()
	if !other.has("#open article") || other.text("#open h1, #open h2") != p.text("#open h1, #open h2") || other.text("#list .matches") != p.text("#list .matches") {
		t.Errorf("another browser shows %q, %q", other.text("#open h1, #open h2"), other.text("#list .matches"))
	}
	if got := other.query(); got.Get("bbox") != b || got.Get("map") != shared.Get("map") || got.Get("letter") != shared.Get("letter") {
		t.Errorf("another browser is at %v, this one at %v", got, shared)
	}
	p.press(kb.Escape)
	p.until("the letter to be closed", func() bool { return !p.has("#open article") })
	p.press("c")
	p.until("the box to be gone", func() bool { return p.query().Get("bbox") == "" })
	p.until("all letters to match", func() bool { return strings.Contains(p.text("#list .matches"), "7 ") })
	p.clean()
	other.clean()
}

func TestAGroupIsQuarantinedAndARedriveTakenBack(t *testing.T) {
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_UNDO_WINDOW": "8s"})
	s.outage(sink, 5)
	for i := range 4 {
		s.post(fmt.Sprintf("b%d", i), bowtie)
		s.settle(fmt.Sprintf("b%d", i))
	}
	p := s.newPage(t, 1440, 900)
	p.open("/")
	p.click(`#filters a[href*="group="]`) // the largest cause: the outage
	p.until("five to match", func() bool { return strings.Contains(p.text("#list .matches"), "5 ") })
	p.click(`#all button[value="quarantine"]`)
	p.click(`form[action$="/start"] button`)
	s.eventually("the group to be quarantined", func() bool { return s.count("select count(*) from dead_letters where status = 'quarantined'") == 5 })
	p.open("/?class=invalid_geometry")
	asked := s.count("select count(*) from dead_letter_history where action = 'redrive'")
	at := p.middle("#rows .row")
	p.hover(at.X, at.Y)
	p.click("#rows .row .do button.go")
	p.until("the way back to be offered", func() bool { return p.has("#toast form") })
	if n := s.count("select count(*) from dead_letters where status = 'redriving'"); n != 1 || asked != 0 {
		t.Errorf("%d are redriving", n)
	}
	p.click("#toast form button")
	s.eventually("it to be taken back", func() bool { return s.count("select count(*) from dead_letters where status = 'redriving'") == 0 })
	if n := s.count("select count(*) from dead_letters where attempts > 1 or redrives > 0"); n != 0 {
		t.Error("taking back cost an attempt")
	}
	p.clean()
}

func TestThePagesWorkWithoutJavaScript(t *testing.T) {
	sink := newTestSink(t)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.outage(sink, 6)
	p := s.newPage(t, 1440, 900)
	tell(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open("/")
	p.click(`#filters a[href*="class=upstream_error"]`)
	p.until("the class to be in the URL", func() bool { return p.query().Get("class") == "upstream_error" && p.has("#all .primary") })
	p.click(`#all button[value="redrive"]`)
	p.click(`form[action$="/start"] button`)
	s.eventually("all to be replayed", func() bool { return s.count("select count(*) from dead_letters where status = 'replayed'") == 6 })
	p.open("/ledger?source=nobody")
	p.click(`.chips a`)
	p.until("the ledger of all sources", func() bool { return p.has(".figures tfoot") && !p.query().Has("source") })
	p.click(`.ledgerbar a[href*="since="]`)
	p.until("the ledger of today alone", func() bool { return p.query().Has("since") && p.has(`.ledgerbar a[aria-current]`) })
	p.clean()
}

// hostile is a script, in every guise in which it might run.
const hostile = `"><script>document.title='pwned'</script><img src=x onerror="document.title='pwned'"><svg onload="document.title='pwned'">{{7*7}}</textarea></script>`

func TestAScriptInEveryFieldOfALetterNeverRuns(t *testing.T) {
	s := startServer(t, nil)
	text, _ := json.Marshal(hostile)
	field := string(text)
	a := s.do("POST", "/v1/dead-letters", nil, []byte(`{"work_key":`+strings.ReplaceAll(field, "#", "")+`,"task":`+field[:100]+`","error":`+field+`,"traceback":`+field+`,
		"geometry":{"type":"Point","coordinates":[1,2]},"src_crs":"EPSG:4326","params":{`+field+`:`+field+`},"labels":{`+field+`:`+field+`},"payload":`+field+`,
		"payload_ref":{"uri":`+field+`},"code_version":`+field+`,"run_id":`+field+`,"host":`+field+`,"log_url":"javascript:document.title='pwned'","trace_id":`+field+`}`))
	if a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.do("POST", "/v1/events", map[string]string{"Content-Type": "text/html", "Content-Crs": hostile, "Geodlq-Task": "<b>task</b>", "Idempotency-Key": "e"}, []byte(hostile))
	s.settle("e")
	s.exec("update dead_letters set source = $1, reason = $1, class = 'oom'", hostile)
	s.order(map[string]any{"action": "quarantine", "ids": []int{1, 2}, "dry_run": true, "reason": hostile}, 200)
	p := s.newPage(t, 1440, 900)
	for _, path := range []string{"/", "/?letter=1", "/?q=" + url.QueryEscape(hostile), "/?source=" + url.QueryEscape(hostile), "/letters/1", "/letters/2", "/redrives", "/redrives/1", "/v1/dead-letters/2/payload", "/?stage=" + url.QueryEscape(hostile)} {
		if strings.HasSuffix(path, "/payload") {
			continue // it is an attachment
		}
		p.open(path)
		p.do(chromedp.Sleep(300 * time.Millisecond))
		if js[string](p, "document.title") == "pwned" {
			t.Errorf("%s: a letter's script ran", path)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.complaints {
		if strings.Contains(c, "Content Security Policy") || strings.Contains(c, "exception") {
			t.Errorf("the browser complains: %s", c)
		}
	}
}

func TestThePagesAreAccessibleAndNothingIsCutOff(t *testing.T) {
	wantsBrowser(t)
	axe, err := os.ReadFile("../../node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: npm ci brings it", err)
	}
	s := startServer(t, nil)
	s.post("bowtie", bowtie)
	id := s.settle("bowtie")["letter_id"]
	s.post("cut", `{"type":"Point","coordinates":[1,`)
	s.settle("cut")
	s.waitOrder(s.order(map[string]any{"filter": map[string]any{"class": "invalid_geometry"}}, 202)["id"])
	preview := s.order(map[string]any{"filter": map[string]any{"class": "malformed_payload"}, "dry_run": true}, 200)["id"]
	paths := []string{
		"/", "/?class=oom", "/?class=invalid_geometry&bbox=0,0,50,60", fmt.Sprintf("/?letter=%.0f", id), fmt.Sprintf("/letters/%.0f", id),
		"/redrives", "/redrives/1", fmt.Sprintf("/redrives/%.0f", preview), "/letters/999",
		"/ledger", "/ledger?source=nobody",
	}
	s.exec("delete from events where work_key = 'cut'")
	if _, err := s.command("ledger", "-check"); err == nil { // so that its alarm is seen too
		t.Error("the check passes over a deleted event")
	}
	for _, size := range [][2]int64{{1440, 900}, {1024, 768}, {390, 844}} {
		for _, scheme := range []string{"light", "dark"} {
			p := s.newPage(t, size[0], size[1])
			tell(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			for _, path := range paths {
				p.open(path)
				if over := js[float64](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s at %d px %s is %v px too wide", path, size[0], scheme, over)
				}
				js[bool](p, string(axe)+"; true")
				for _, found := range js[[]string](p, `axe.run({resultTypes: ["violations"]}).then(r => r.violations
					.filter(v => v.impact === "serious" || v.impact === "critical").map(v => v.id + ": " + v.nodes[0].html.slice(0, 200)))`) {
					t.Errorf("%s at %d px %s: %s", path, size[0], scheme, found)
				}
				p.shot(strings.Trim(strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(path), "-") + "-" + scheme)
			}
		}
	}
}

func TestNumbersAreNeverCut(t *testing.T) {
	s := startServer(t, nil)
	s.exec(`insert into dead_letters (work_key, kind, task, source, stage, class, error, fingerprint, located_by, status)
		select 'k' || i, 'event', 't', 's', 'parse', 'unsupported_format', 'no reader', 'g', 'none', 'pending' from generate_series(1, 30000) i`)
	for _, width := range []int64{1440, 1024, 390} {
		p := s.newPage(t, width, 844)
		p.open("/#filters")
		cut := js[[]string](p, `[...document.querySelectorAll(".rail .bar .n, .kpis dd, .group small span")].filter(e => e.checkVisibility()).filter(e => {
			const text = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), range = document.createRange();
			while (text.nextNode() && !text.currentNode.data.trim());
			range.selectNode(text.currentNode);
			const number = range.getBoundingClientRect(), room = e.getBoundingClientRect();
			return number.left < room.left - 1 || (number.right > room.right + 1 && !e.matches(".group *"));
		}).map(e => e.innerText)`)
		if len(cut) > 0 || p.text(`.bar[href*="unsupported_format"] .n`) == "" {
			t.Errorf("at %d px: %q are cut", width, cut)
		}
	}
}

func TestTicksGoAlongFromPageToPage(t *testing.T) {
	s := startServer(t, nil)
	s.spread(120)
	s.exec("update dead_letters set status = 'pending'")
	p := s.newPage(t, 1440, 900)
	p.open("/")
	p.click("#rows .row:nth-child(2) .tick input")
	at := p.middle("#rows .row:nth-child(5) .tick input")
	p.mouse(input.DispatchMouseEventTypeMousePressed, at.X, at.Y, shift)
	p.mouse(input.DispatchMouseEventTypeMouseReleased, at.X, at.Y, shift)
	p.until("a range to be ticked", func() bool { return strings.Contains(p.text("#ticked"), "4 ticked") })
	p.click(`#rows .pager a[rel="next"]`)
	p.until("the older letters", func() bool { return p.query().Get("after") != "" && p.has("#rows .row") })
	p.click("#rows .row:nth-child(1) .tick input")
	p.until("five to be ticked", func() bool { return strings.Contains(p.text("#ticked"), "5 ticked") })
	p.click(`#ticked button[value="quarantine"]`)
	p.click(`form[action$="/start"] button`)
	s.eventually("all five to be quarantined", func() bool { return s.count("select count(*) from dead_letters where status = 'quarantined'") == 5 })
	p.clean()
}

func TestABoxMayEndOutsideTheMap(t *testing.T) {
	s := startServer(t, nil)
	s.report(map[string]any{"work_key": "k", "geometry": map[string]any{"type": "Point", "coordinates": []float64{0, 0}}}, "")
	p := s.newPage(t, 1440, 900)
	p.open("/?map=3/0/0")
	p.mapReady()
	x, y := p.pixel(-10, 10)
	p.press("b")
	p.drag(x, y, 1400, y+200, 0)
	p.until("the box to be in the URL", func() bool { return p.query().Get("bbox") != "" })
	if p.has(`[data-do="box"][aria-pressed="true"]`) {
		t.Error("the tool is stuck")
	}
	p.clean()
}

func TestATypedBoxIsGoneToAndAWrongOneIsNot(t *testing.T) {
	s := startServer(t, nil)
	s.report(map[string]any{"work_key": "k", "geometry": map[string]any{"type": "Point", "coordinates": []float64{30, 32}}}, "")
	p := s.newPage(t, 1440, 900)
	p.open("/?map=6/46/8")
	p.mapReady()
	enter := func(box string) {
		if !p.has(".boxtools details[open]") {
			p.click(".boxtools summary")
		}
		p.click("#bbox")
		js[any](p, "document.querySelector('#bbox').select()")
		p.do(chromedp.KeyEvent(box), chromedp.KeyEvent("\r"))
	}
	enter("30,99,36,36")
	p.until("it to be refused", func() bool {
		return strings.Contains(p.text("#alerts .failed"), "bbox") && p.text("#alerts button") == "Dismiss"
	})
	if view := p.query().Get("map"); view != "6/46/8" || js[string](p, "document.activeElement.id") != "bbox" {
		t.Errorf("the map is at %s, the focus elsewhere", view)
	}
	enter("29,31,36,36")
	p.until("the box to be seen", func() bool {
		return strings.Contains(p.query().Get("map"), "/33.5") && p.query().Get("bbox") == "29,31,36,36"
	})
	if x, y := p.pixel(30, 32); x < 280 || x > 1000 || y < 150 || y > 780 {
		t.Errorf("the letter is at %.0f %.0f", x, y)
	}
	if at := js[string](p, "document.activeElement.textContent"); !strings.HasPrefix(at, "Box:") {
		t.Errorf("the focus is at %q", at)
	}
}

func TestTheMapFollowsWhatIsDoneToALetter(t *testing.T) {
	s := startServer(t, nil)
	s.report(map[string]any{"work_key": "k", "geometry": map[string]any{"type": "Point", "coordinates": []float64{0, 0}}}, "")
	p := s.newPage(t, 1440, 900)
	p.open("/?status=pending&map=12/0/0")
	p.mapReady()
	x, y := p.pixel(0, 0)
	var sign color.Color
	p.until("the letter to be drawn", func() bool { sign = p.color(x, y); return sign != p.color(x+60, y+60) })
	at := p.middle("#rows .row")
	p.hover(at.X, at.Y)
	p.click(`#rows .row .do button[value="quarantine"]`)
	p.until("the list to follow", func() bool { return !p.has("#rows .row") })
	p.hover(10, 10)
	p.until("the letter to be gone from the map", func() bool { return p.color(x, y) != sign })
	p.clean()
}

// TestAPageComesBackByItselfAfterAnOutage leaves three pages open while PostgreSQL is
// stopped: the list, one that could not be shown, and one that is not swapped.
func TestAPageComesBackByItselfAfterAnOutage(t *testing.T) {
	pg := startPostgres(t)
	s := startCommand(t, "serve", pg.cluster.URL(), nil)
	s.post("bad", bowtie)
	s.settle("bad")
	list, none, ledger := s.newPage(t, 1440, 900), s.newPage(t, 1440, 900), s.newPage(t, 1440, 900)
	list.open("/")
	ledger.open("/ledger")
	pg.stop(fast)
	list.click(`#filters a[href*="class=invalid_geometry"]`)
	list.until("the list to say so", func() bool {
		return strings.Contains(list.text("#alerts .away"), "The database can't be reached since")
	})
	if !list.has("#rows .row") {
		t.Error("the letters that were shown are gone")
	}
	said := list.text("#alerts .away")
	none.open("/")
	none.until("the page to say so", func() bool { return none.has("[data-retry]") })
	list.shot("outage")
	time.Sleep(7 * time.Second) // it looks again twice
	if again := list.text("#alerts .away"); again != said {
		t.Errorf("it goes on talking: %q, then %q", said, again)
	}
	pg.start()
	list.until("what was asked for to be shown", func() bool { return list.query().Get("class") == "invalid_geometry" })
	for name, p := range map[string]*page{"list": list, "none": none} {
		p.until(name+" to be back", func() bool { return p.has("#rows .row") && p.text("#alerts") == "" && p.text("#outage") == "" })
	}
	if ledger.text("#outage") != "" {
		t.Error("the ledger speaks of an outage that it was never told of")
	}
}

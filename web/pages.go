package web

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
	"geodlq/internal/pipeline"
	"geodlq/views"
)

// pageRows is how many letters a page lists.
const pageRows = 50

// servePage renders a page whole before its status is written.
func servePage(c echo.Context, status int, page templ.Component) error {
	var out bytes.Buffer
	if err := page.Render(c.Request().Context(), &out); err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.HTMLBlob(status, out.Bytes())
}

// pageNames are the page's own parameters beside the filter's: where in the list
// it is, which letter is open, what the map shows, and what may be taken back.
var pageNames = []string{"after", "letter", "map", "undo"}

func (s *Server) pageTriage(c echo.Context) error {
	q, err := readQuery(c, pageNames...)
	if err != nil {
		return err
	}
	page := views.TriagePage{
		Filter: q.filter, Now: time.Now(), Demo: s.demoView(), View: mapView(q.values.Get("map")),
		BaseURL: baseURL(c.Request()), MapStyle: s.config.MapStyle,
	}
	if err := s.readTriage(c.Request().Context(), q, &page); err != nil {
		return err
	}
	if q.after != nil {
		page.First = views.Home(q.filter)
	}
	page.Self = selfLink(q)
	page.Outage, page.Reads = s.outage(), s.reads() // as it was found
	return servePage(c, http.StatusOK, views.Triage(page))
}

// readTriage asks for all that the page shows at once: the answers are of different
// connections, and together take as long as the slowest.
func (s *Server) readTriage(ctx context.Context, q *query, page *views.TriagePage) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		page.Depth, err = s.depth.get(ctx, s.store.Depth)
		return err
	})
	group.Go(func() (err error) {
		page.Charts, err = s.store.Charts(ctx, q.filter)
		return err
	})
	group.Go(func() error {
		letters, err := s.store.Letters(ctx, q.filter, q.after, pageRows)
		if err != nil {
			return err
		}
		page.Letters = letters.Letters
		if letters.Next != nil {
			page.Next = views.HomeAfter(q.filter, letters.Next)
		}
		page.AnyEver, err = s.store.AnyLetter(ctx)
		return err
	})
	group.Go(func() (err error) {
		page.Open, err = s.openLetter(ctx, q.values.Get("letter"))
		return err
	})
	group.Go(func() (err error) {
		page.Undo, err = s.undoOffer(ctx, q.values.Get("undo"))
		return err
	})
	return group.Wait()
}

// openLetter is the letter beside the map; one that is not there is left closed.
func (s *Server) openLetter(ctx context.Context, id string) (*views.LetterPage, error) {
	if id == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 1 {
		return nil, dlq.BadRequest("letter", "is not the id of a letter")
	}
	open, err := s.letterPage(ctx, n)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	open.Beside = true
	return open, nil
}

// undoOffer offers to take a redrive back, while that is possible.
func (s *Server) undoOffer(ctx context.Context, id string) (*views.UndoOffer, error) {
	if id == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 1 {
		return nil, dlq.BadRequest("undo", "is not the id of a letter")
	}
	until, err := s.store.UndoUntil(ctx, n)
	if err != nil || until == nil {
		return nil, err
	}
	return &views.UndoOffer{LetterID: n, Until: *until}, nil
}

// mapView is ZOOM/LAT/LON, or nothing where it is not that.
func mapView(text string) string {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ""
	}
	for _, part := range parts {
		if v, err := strconv.ParseFloat(part, 64); err != nil || v < -1000 || v > 1000 {
			return ""
		}
	}
	return text
}

// baseURL is how the client reached us, for examples.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// selfLink is this page, as a form that acts on it comes back to it.
func selfLink(q *query) string {
	v := q.filter.Values()
	for _, name := range []string{"after", "letter", "map"} {
		if text := q.values.Get(name); text != "" {
			v.Set(name, text)
		}
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

func (s *Server) demoView() *views.Demo {
	if s.demo == nil {
		return nil
	}
	return &views.Demo{SinkDown: s.demo.SinkDown(), Region: s.demo.Region()}
}

func (s *Server) pageLetter(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	page, err := s.letterPage(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if did := dlq.Action(c.QueryParam("did")); did.Valid() {
		page.Notice = doneNotice[did]
	}
	if page.Undo, err = s.undoOffer(c.Request().Context(), c.QueryParam("undo")); err != nil {
		return err
	}
	return servePage(c, http.StatusOK, views.Letter(*page))
}

// doneNotice says what a form just did.
var doneNotice = map[dlq.Action]string{
	dlq.ActionRedrive:    "Redrive ordered: the event runs again, on the same bytes and at the same work key.",
	dlq.ActionQuarantine: "Quarantined: the letter is left alone until somebody releases it.",
	dlq.ActionRelease:    "Released: the letter is pending again.",
	dlq.ActionAbandon:    "Abandoned. It can be released should that prove wrong.",
}

func (s *Server) letterPage(ctx context.Context, id int64) (*views.LetterPage, error) {
	letter, err := s.store.Letter(ctx, id)
	if err != nil {
		return nil, err
	}
	history, err := s.store.History(ctx, id)
	if err != nil {
		return nil, err
	}
	page := &views.LetterPage{Letter: letter, History: history, Now: time.Now(), MapStyle: s.config.MapStyle, Outage: s.outage()}
	h := &hold{budget: s.inFlight}
	defer h.release()
	found, err := s.store.Payload(ctx, id, h.take)
	why, tellable := payloadTrouble(letter, err)
	switch {
	case err == nil:
		page.Payload = payloadView(found)
		page.SentGeometry, page.SentNote = s.sketch(ctx, found.Event, h)
	case tellable:
		page.Payload = why
	default:
		return nil, err
	}
	return page, nil
}

// payloadTrouble says on the page why a payload is not shown, where the rest of the
// letter can be.
func payloadTrouble(l *dlq.Letter, err error) (views.PayloadView, bool) {
	v := views.PayloadView{Missing: true, Size: l.Size, MediaType: l.MediaType, SHA256: l.SHA256}
	switch {
	case errors.Is(err, dlq.ErrOverloaded):
		v.Title, v.Why = "The payload is not shown now.", "The server holds as many large bodies as it can. Reload the page in a moment."
	case errors.Is(err, dlq.ErrNotFound) && l.Kind == dlq.KindEvent:
		v.Title, v.Why = "No payload is kept.", "The bytes of this event are no longer kept."
	case errors.Is(err, dlq.ErrNotFound):
		v.Title, v.Why = "No payload is kept.", "The report came without a payload."
	case errors.Is(err, payload.ErrMissing):
		v.Title, v.Why, v.Lost = "The payload is missing from the bucket.", "It was too large for the database. Somebody deleted it in the bucket, or the bucket was not restored with the database. Until it is back there, a redrive fails.", true
	case errors.Is(err, dlq.ErrCorrupt):
		v.Title, v.Why, v.Lost = "The stored bytes have changed.", "They no longer match the SHA-256 of what was received, so they are neither shown nor replayed.", true
	case errors.Is(err, payload.ErrUnavailable):
		v.Title, v.Why, v.Lost = "The bucket of large payloads can’t be reached.", "The payload is shown again once it answers. Redrives wait for it.", true
	default:
		return v, false
	}
	return v, true
}

// maxSketched is the largest payload, decoded, whose coordinates are drawn as sent, and
// sketchCost how many times its bytes that takes of memory.
const (
	maxSketched = 8 << 20
	sketchCost  = 4
)

// sketchTimeout bounds the drawing of coordinates: a page without it is still one.
const sketchTimeout = 2 * time.Second

// sketch draws the coordinates of a whole event; nothing for nil.
func (s *Server) sketch(ctx context.Context, event *dlq.Event, h *hold) (json.RawMessage, string) {
	if event == nil {
		return nil, ""
	}
	size := event.Size
	if pipeline.IsGzip(event.Headers["content-encoding"]) {
		size = pipeline.GunzipSize(event.Body, maxSketched)
	}
	if size > maxSketched {
		return nil, ""
	}
	if h.take(sketchCost*size) != nil {
		return nil, "The coordinates are not drawn now: the server holds as many large bodies as it can."
	}
	ctx, cancel := context.WithTimeout(ctx, sketchTimeout)
	defer cancel()
	return s.locator.Sketch(ctx, event, maxSketched)
}

// maxShown bounds the bytes of a payload that a page shows.
const maxShown = 64 << 10

func payloadView(p *dlq.Payload) views.PayloadView {
	v := views.PayloadView{Size: int64(len(p.Body)), MediaType: p.MediaType, SHA256: hex.EncodeToString(p.SHA256)}
	for name, value := range p.Headers {
		v.Headers = append(v.Headers, views.Header{Name: name, Value: value})
	}
	slices.SortFunc(v.Headers, func(a, b views.Header) int { return strings.Compare(a.Name, b.Name) })
	shown := p.Body
	if pipeline.IsGzip(p.Headers["content-encoding"]) {
		if decoded, err := pipeline.Gunzip(p.Body, maxShown); err == nil {
			shown = decoded
		}
	}
	v.Truncated = len(shown) > maxShown
	if v.Truncated {
		shown = cutRune(shown[:maxShown])
	}
	switch {
	case !utf8.Valid(shown) || bytes.IndexByte(shown, 0) >= 0:
		const dumped = 4 << 10 // a dump is four times as long as its bytes
		v.Truncated = v.Truncated || len(shown) > dumped
		v.Hex = hex.Dump(shown[:min(len(shown), dumped)])
	default:
		v.Text = indented(shown, p.MediaType)
	}
	return v
}

// cutRune drops an incomplete character at the end.
func cutRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// indented sets JSON out for reading; every token stays as it was sent.
func indented(text []byte, mediaType string) string {
	base, _, _ := mime.ParseMediaType(mediaType)
	if strings.HasSuffix(base, "json") && nesting(text) <= maxIndented {
		var out bytes.Buffer
		if json.Indent(&out, text, "", "  ") == nil && out.Len() <= 4*maxShown {
			return out.String()
		}
	}
	return string(text)
}

// maxIndented is how deep JSON may be nested to be set out: each level widens every
// line within.
const maxIndented = 32

// nesting is at least how deep brackets stand within one another.
func nesting(text []byte) int {
	depth, deepest := 0, 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// formAction does what a form on a page asks for, and goes back to a page that
// shows it.
func (s *Server) formAction(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	a, err := action(c)
	if err != nil {
		return err
	}
	if err := parseForm(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	_, err = s.desk.Act(ctx, id, a, actorOf(true), c.FormValue("reason"))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, backTo(c.FormValue("back"), id, a))
	}
	return s.serveConflict(c, id, err)
}

// maxForm bounds the body of a form.
const maxForm = 64 << 10

func parseForm(c echo.Context) error {
	r := c.Request()
	r.Body = http.MaxBytesReader(c.Response(), r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return bodyError(err)
	}
	return nil
}

// backTo is a page of ours that a form came from, else the letter's; it says what
// was done.
func backTo(back string, id int64, did dlq.Action) string {
	u, err := url.Parse(back)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" || (u.Path != "/" && u.Path != views.LetterURL(id)) {
		u = &url.URL{Path: views.LetterURL(id)}
	}
	v := u.Query()
	v.Del("undo")
	if u.Path != "/" {
		v.Set("did", string(did))
	}
	if did == dlq.ActionRedrive {
		v.Set("undo", strconv.FormatInt(id, 10))
	}
	if len(v) == 0 {
		return u.Path
	}
	return u.Path + "?" + v.Encode()
}

// formUndo takes the redrive of one letter back.
func (s *Server) formUndo(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	if err := parseForm(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	_, err = s.desk.Undo(ctx, id, actorOf(true))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, backTo(c.FormValue("back"), id, ""))
	}
	return s.serveConflict(c, id, err)
}

// serveConflict shows the letter as it stands, with why something was not done.
func (s *Server) serveConflict(c echo.Context, id int64, err error) error {
	if !errors.Is(err, dlq.ErrConflict) && !errors.Is(err, dlq.ErrInvalid) {
		return err
	}
	page, pageErr := s.letterPage(c.Request().Context(), id)
	if pageErr != nil {
		return pageErr
	}
	p := s.problemOf(err)
	page.Notice, page.NoticeBad = p.Detail, true
	return servePage(c, p.Status, views.Letter(*page))
}

// formDemoSink switches the demo's sink.
func (s *Server) formDemoSink(c echo.Context) error {
	if err := parseForm(c); err != nil {
		return err
	}
	s.demo.SetSinkDown(c.FormValue("up") != "true")
	return c.Redirect(http.StatusSeeOther, "/")
}

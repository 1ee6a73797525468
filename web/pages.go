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
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
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

func (s *Server) pageTriage(c echo.Context) error {
	q, err := readQuery(c, "after")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	page := views.TriagePage{Filter: q.filter, Now: time.Now(), Demo: s.demoView()}
	if page.Depth, err = s.store.Depth(ctx); err != nil {
		return err
	}
	if page.Stats, err = s.store.Stats(ctx, q.filter); err != nil {
		return err
	}
	letters, err := s.store.Letters(ctx, q.filter, q.after, pageRows)
	if err != nil {
		return err
	}
	page.Letters = letters.Letters
	if letters.Next != nil {
		page.Next = pageLink(q.filter, letters.Next)
	}
	if q.after != nil {
		page.First = views.Home(q.filter)
	}
	if page.AnyEver, err = s.store.AnyLetter(ctx); err != nil {
		return err
	}
	return servePage(c, http.StatusOK, views.Triage(page))
}

func pageLink(f dlq.Filter, after *dlq.Cursor) string {
	v := f.Values()
	v.Set("after", after.String())
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
	payload, err := s.store.Payload(ctx, id)
	if err != nil && !errors.Is(err, dlq.ErrNotFound) {
		return nil, err
	}
	return &views.LetterPage{Letter: letter, History: history, Payload: payloadView(letter, payload), Now: time.Now()}, nil
}

// maxShown bounds the bytes of a payload that a page shows.
const maxShown = 64 << 10

func payloadView(l *dlq.Letter, p *dlq.Payload) views.PayloadView {
	if p == nil {
		why := "The report came without a payload."
		if l.Kind == dlq.KindEvent {
			why = "The bytes of this event are no longer kept."
		}
		return views.PayloadView{Missing: true, Why: why}
	}
	v := views.PayloadView{Size: int64(len(p.Body)), MediaType: p.MediaType, SHA256: hex.EncodeToString(p.SHA256)}
	for name, value := range p.Headers {
		v.Headers = append(v.Headers, views.Header{Name: name, Value: value})
	}
	slices.SortFunc(v.Headers, func(a, b views.Header) int { return strings.Compare(a.Name, b.Name) })
	shown := p.Body
	if isGzip(p.Headers["content-encoding"]) {
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
	if strings.HasSuffix(base, "json") {
		var out bytes.Buffer
		if json.Indent(&out, text, "", "  ") == nil {
			return out.String()
		}
	}
	return string(text)
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
	if !errors.Is(err, dlq.ErrConflict) && !errors.Is(err, dlq.ErrInvalid) {
		return err
	}
	// The letter as it stands, with why not.
	page, pageErr := s.letterPage(ctx, id)
	if pageErr != nil {
		return pageErr
	}
	p := s.problemOf(err)
	page.Notice, page.NoticeBad = p.Detail, true
	return servePage(c, p.Status, views.Letter(*page))
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

// backTo is a page of ours that a form came from, else the letter's.
func backTo(back string, id int64, did dlq.Action) string {
	u, err := url.Parse(back)
	if err == nil && u.Path == "/" && u.Host == "" && u.Scheme == "" && u.Opaque == "" {
		return "/?" + u.RawQuery
	}
	return views.LetterURL(id) + "?did=" + string(did)
}

// formDemoSink switches the demo's sink.
func (s *Server) formDemoSink(c echo.Context) error {
	if err := parseForm(c); err != nil {
		return err
	}
	s.demo.SetSinkDown(c.FormValue("up") != "true")
	return c.Redirect(http.StatusSeeOther, "/")
}

package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/triage"
	"geodlq/views"
)

// itemRows is how many letters of an order its page lists.
const itemRows = 50

func (s *Server) pageRedrives(c echo.Context) error {
	redrives, next, err := s.listRedrives(c, pageRows)
	if err != nil {
		return err
	}
	page := views.RedrivesPage{Redrives: redrives, Now: time.Now(), Outage: s.outage()}
	if next != 0 {
		page.Next = views.RedrivesURL + "?before=" + strconv.FormatInt(next, 10)
	}
	return servePage(c, http.StatusOK, views.Redrives(page))
}

func (s *Server) pageRedrive(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	return s.serveRedrive(c, http.StatusOK, id, "")
}

// serveRedrive is an order's page, with why something was not done, if it was not.
func (s *Server) serveRedrive(c echo.Context, status int, id int64, problem string) error {
	state := dlq.RedriveItemState(c.QueryParam("state"))
	if state != "" && !slices.Contains(dlq.ItemStates, state) {
		return dlq.BadRequest("state", "%.40q is none of %v", string(state), dlq.ItemStates)
	}
	var after int64
	if text := c.QueryParam("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return dlq.BadRequest("after", "is not a position in the order")
		}
	}
	ctx := c.Request().Context()
	redrive, err := s.store.RedriveByID(ctx, id)
	if err != nil {
		return err
	}
	page := views.RedrivePage{
		Redrive: *redrive, State: state, Now: time.Now(), Notice: problem, NoticeBad: problem != "", MapStyle: s.config.MapStyle, Outage: s.outage(),
	}
	if len(redrive.Filter.Groups) > 0 {
		if page.Groups, err = s.store.GroupTitles(ctx, redrive.Filter.Groups); err != nil {
			return err
		}
	}
	if page.Items, err = s.store.RedriveItems(ctx, id, state, after, itemRows+1); err != nil {
		return err
	}
	if len(page.Items) > itemRows {
		page.Items = page.Items[:itemRows]
		page.Next = itemsLink(id, state, page.Items[itemRows-1].Position)
	}
	if after > 0 {
		page.First = itemsLink(id, state, 0)
	}
	if page.Extent, err = s.store.RedriveExtent(ctx, id); err != nil {
		return err
	}
	return servePage(c, status, views.Redrive(page))
}

func itemsLink(id int64, state dlq.RedriveItemState, after int64) string {
	v := url.Values{}
	if state != "" {
		v.Set("state", string(state))
	}
	if after > 0 {
		v.Set("after", strconv.FormatInt(after, 10))
	}
	if len(v) == 0 {
		return views.RedriveURL(id)
	}
	return views.RedriveURL(id) + "?" + v.Encode()
}

// maxOrderForm bounds a form with ticked letters.
const maxOrderForm = 1 << 20

// formRedrive previews an order and goes to its page, where it can be started.
func (s *Server) formRedrive(c echo.Context) error {
	r := c.Request()
	r.Body = http.MaxBytesReader(c.Response(), r.Body, maxOrderForm)
	if err := r.ParseForm(); err != nil {
		return bodyError(err)
	}
	order, err := orderOf(r.PostForm)
	if err != nil {
		return err
	}
	redrive, err := s.desk.Preview(r.Context(), order)
	if err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, views.RedriveURL(redrive.ID))
}

func orderOf(form url.Values) (triage.Order, error) {
	order := triage.Order{
		Action: dlq.Action(form.Get("action")), Everything: form.Get("everything") == "true",
		Actor: actorOf(true), Reason: form.Get("reason"),
	}
	for _, text := range form["id"] {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return order, dlq.BadRequest("id", "%.40q is not the id of a letter", text)
		}
		order.IDs = append(order.IDs, id)
	}
	values, err := url.ParseQuery(form.Get("filter"))
	if err != nil {
		return order, dlq.BadRequest("filter", "can't be read")
	}
	if unknown := dlq.UnknownNames(values); len(unknown) > 0 {
		return order, dlq.BadRequest("filter", "%.60q is no part of one", unknown[0])
	}
	order.Filter, err = dlq.ParseFilter(values, time.Now())
	return order, err
}

// formControl starts, pauses, resumes or cancels an order.
func (s *Server) formControl(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	if err := parseForm(c); err != nil {
		return err
	}
	_, err = s.desk.Control(c.Request().Context(), id, c.Param("verb"), actorOf(true), c.FormValue("reason"))
	if errors.Is(err, dlq.ErrConflict) {
		p := s.problemOf(err)
		return s.serveRedrive(c, p.Status, id, p.Detail)
	}
	if err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, views.RedriveURL(id))
}

package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/store"
)

// wroteCookie holds how far the primary had written when this browser last changed
// something. What it reads next goes past a replica that does not have that yet, so that
// nobody sees what he did undone.
const wroteCookie = "geodlq-wrote"

// wroteLife is how long the cookie is kept beyond what the replica may be behind.
const wroteLife = 10 * time.Second

// readOwnWrites takes the cookie, and gives it with the answer to whatever an operator
// asks to be done. Events and reports are many, and their senders look at no pages.
func (s *Server) readOwnWrites(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		replica, any := s.store.Replica()
		r := c.Request()
		switch {
		case !any || c.Path() == "/v1/events" || c.Path() == "/v1/dead-letters" && r.Method == http.MethodPost:
		case r.Method != http.MethodGet:
			c.Response().Before(func() { s.setWrote(c, replica.LagMax+wroteLife) })
		default:
			if cookie, err := c.Cookie(wroteCookie); err == nil {
				if mark, err := strconv.ParseInt(cookie.Value, 10, 64); err == nil {
					c.SetRequest(r.WithContext(store.After(r.Context(), mark)))
				}
			}
		}
		return next(c)
	}
}

// wroteTimeout bounds the question how far the primary has written.
const wroteTimeout = time.Second

func (s *Server) setWrote(c echo.Context, life time.Duration) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), wroteTimeout)
	defer cancel()
	mark, err := s.store.Written(ctx)
	if err != nil {
		mark = store.UnknownMark
	}
	c.SetCookie(&http.Cookie{
		Name: wroteCookie, Value: strconv.FormatInt(mark, 10), Path: "/", MaxAge: int(life.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: c.Request().TLS != nil,
	})
}

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"

	"github.com/labstack/echo/v4"

	"geodlq/internal/door"
	"geodlq/internal/store"
)

// contentSecurityPolicy allows what our own origin serves and nothing inline.
const contentSecurityPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:%[1]s; font-src 'self'; " +
	"connect-src 'self'%[1]s; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// securityHeaders go with every answer. A style of the map's that comes from
// another origin is allowed to be read, with its tiles and pictures.
func (s *Server) securityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	mapOrigin := ""
	if u, err := url.Parse(s.config.MapStyle); err == nil && u.Host != "" {
		mapOrigin = " " + u.Scheme + "://" + u.Host
	}
	policy := fmt.Sprintf(contentSecurityPolicy, mapOrigin)
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		return next(c)
	}
}

// crossOrigin refuses unsafe requests that a browser makes for another site.
func crossOrigin() echo.MiddlewareFunc {
	protection := http.NewCrossOriginProtection()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := protection.Check(c.Request()); err != nil {
				return echo.NewHTTPError(http.StatusForbidden, "this request comes from another site")
			}
			return next(c)
		}
	}
}

// impatient gives a database that was found away little time over what is only read:
// one that hangs must not keep its readers waiting. Where there is a sound replica, it
// answers instead, also what finds the database away.
func (s *Server) impatient(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Method != http.MethodGet {
			return next(c)
		}
		if !s.door.IsAway() {
			err := next(c)
			if replica, _ := s.store.Replica(); !replica.Sound || c.Response().Committed || !isAway(err) {
				return err
			}
			s.door.Away(err)
		}
		ctx, cancel := context.WithTimeout(store.WithoutPrimary(r.Context()), door.AwayTimeout)
		defer cancel()
		c.SetRequest(r.WithContext(ctx))
		return next(c)
	}
}

// isAway reports whether err says that the database is away.
func isAway(err error) bool {
	return store.Unavailable(err) || errors.Is(err, context.DeadlineExceeded)
}

// forgetDepth lets a page after any unsafe request show what that did.
func (s *Server) forgetDepth(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if method := c.Request().Method; method != http.MethodGet && method != http.MethodHead {
			s.depth.forget()
		}
		return err
	}
}

// recover turns a panic into an error; its value is logged by type alone, since
// it may quote a payload.
func (s *Server) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				s.logger.Error("handler panicked", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
				err = echo.ErrInternalServerError
			}
		}()
		return next(c)
	}
}

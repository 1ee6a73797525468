package web

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/views"
)

//go:embed openapi.json
var openAPI []byte

type healthAnswer struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

// getHealth tells that the process is alive.
func (s *Server) getHealth(c echo.Context) error {
	return answerJSON(c, http.StatusOK, mediaJSON, healthAnswer{"ok", s.config.Version})
}

// readyTimeout bounds the question to the database.
const readyTimeout = 2 * time.Second

// getReady tells whether events can be taken durably, be it in the spool.
func (s *Server) getReady(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := s.door.Ready(ctx); err != nil {
		return err
	}
	status := "ready"
	if s.door.State().Away {
		status = "spooling"
	}
	return answerJSON(c, http.StatusOK, mediaJSON, healthAnswer{status, s.config.Version})
}

// outage is what pages say of the door; nil while all is well.
func (s *Server) outage() *views.Outage {
	state := s.door.State()
	if !state.Away && state.Held == 0 {
		return nil
	}
	return &views.Outage{
		Since: state.Since, Reason: state.Reason, Waiting: state.Held, Used: state.Used, Limit: state.Limit, Full: state.Full, Now: time.Now(),
	}
}

func (s *Server) getOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, mediaJSON, openAPI)
}

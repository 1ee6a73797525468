package web

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
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

// getReady tells whether events can be taken durably.
func (s *Server) getReady(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := s.store.Ping(ctx); err != nil {
		s.logger.Warn("not ready", "error", err)
		c.Response().Header().Set("Retry-After", "5")
		return echo.NewHTTPError(http.StatusServiceUnavailable, "The database can't be reached, or is read-only.")
	}
	return answerJSON(c, http.StatusOK, mediaJSON, healthAnswer{"ready", s.config.Version})
}

func (s *Server) getOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, mediaJSON, openAPI)
}

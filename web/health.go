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
	Status  string         `json:"status"`
	Version string         `json:"version"`
	Replica *replicaAnswer `json:"replica,omitempty"` // of readyz, where there is one
}

type replicaAnswer struct {
	InUse      bool       `json:"in_use"`
	LagSeconds *float64   `json:"lag_seconds"` // null: not known
	AsOf       *time.Time `json:"as_of"`
	Reason     string     `json:"reason"`
}

// getHealth tells that the process is alive.
func (s *Server) getHealth(c echo.Context) error {
	return answerJSON(c, http.StatusOK, mediaJSON, healthAnswer{Status: "ok", Version: s.config.Version})
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
	return answerJSON(c, http.StatusOK, mediaJSON, healthAnswer{status, s.config.Version, s.replicaAnswer()})
}

// replicaAnswer is how the replica stands, for whoever watches; nil: there is none.
func (s *Server) replicaAnswer() *replicaAnswer {
	state, any := s.store.Replica()
	if !any {
		return nil
	}
	out := &replicaAnswer{InUse: state.InUse, Reason: state.Why}
	if state.Sound && !state.AsOf.IsZero() {
		lag := state.Lag.Seconds()
		out.LagSeconds, out.AsOf = &lag, utc(&state.AsOf)
	}
	return out
}

// reads is what the page says of where it was read; nil: there is but one place, or
// the outage says it.
func (s *Server) reads() *views.Reads {
	state, any := s.store.Replica()
	if !any || s.door.IsAway() {
		return nil
	}
	return &views.Reads{Why: state.Why, Sound: state.Sound, Lag: state.Lag}
}

// outage is what pages say of the door; nil while all is well.
func (s *Server) outage() *views.Outage {
	state := s.door.State()
	if !state.Away && state.Held == 0 {
		return nil
	}
	out := &views.Outage{
		Since: state.Since, Reason: state.Reason, Waiting: state.Held, Used: state.Used, Limit: state.Limit, Full: state.Full, Now: time.Now(),
	}
	if replica, _ := s.store.Replica(); state.Away && replica.Sound {
		out.AsOf = replica.AsOf
	}
	return out
}

func (s *Server) getOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, mediaJSON, openAPI)
}

// Package web is geodlq over HTTP: the API and the pages, on Echo.
package web

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/internal/door"
	"geodlq/internal/pipeline"
	"geodlq/internal/store"
	"geodlq/internal/triage"
	"geodlq/static"
)

// Config is what the server needs to know.
type Config struct {
	BodyMax     int64 // bytes of a body, also decoded
	InFlightMax int64 // bytes of all bodies at once; over it 503
	Version     string
	MapStyle    string // URL of a style for the basemap; empty: the built-in one
}

// Demo is the switch of the demo's sink; see cmd/geodlq.
type Demo interface {
	SinkDown() bool
	SetSinkDown(down bool)
	Region() string
}

// Server answers HTTP requests.
type Server struct {
	store    *store.Store
	desk     *triage.Desk
	door     *door.Door
	locator  pipeline.Locator
	config   Config
	inFlight *budget
	demo     Demo // nil outside the demo
	logger   *slog.Logger
	echo     *echo.Echo

	depth      depthCache
	tiles      tileCache
	refusals   *refusals
	complained atomic.Int64 // when a 503 was last logged, in nanoseconds
}

// New returns a server over a store and the door before it. demo may be nil.
func New(s *store.Store, d *door.Door, c Config, demo Demo, logger *slog.Logger) *Server {
	server := &Server{
		store: s, desk: triage.New(s), door: d, locator: pipeline.Locator{PostGIS: s}, config: c,
		inFlight: newBudget(c.InFlightMax), demo: demo, logger: logger, echo: echo.New(),
		refusals: newRefusals(),
	}
	server.install()
	return server
}

// install is the route table.
func (s *Server) install() {
	e := s.echo
	e.HTTPErrorHandler = s.writeError
	e.Use(s.countRefusal, s.recover, s.securityHeaders, crossOrigin(), s.forgetDepth, s.readOwnWrites, s.impatient)

	e.POST("/v1/events", s.postEvents)
	e.GET("/v1/events/:key", s.getEvent)

	e.POST("/v1/dead-letters", s.postReport)
	e.GET("/v1/dead-letters", s.getLetters)
	e.GET("/v1/dead-letters/:id", s.getLetter)
	e.GET("/v1/dead-letters/:id/payload", s.getPayload)
	e.GET("/v1/dead-letters/:id/history", s.getHistory)
	e.POST("/v1/dead-letters/:id/undo", s.postUndo)
	e.POST("/v1/dead-letters/:id/:action", s.postAction)

	e.POST("/v1/redrives", s.postRedrive)
	e.GET("/v1/redrives", s.getRedrives)
	e.GET("/v1/redrives/:id", s.getRedrive)
	e.POST("/v1/redrives/:id/:verb", s.postControl)

	e.GET("/v1/stats", s.getStats)
	e.GET("/v1/ledger", s.getLedger)

	e.GET("/tiles.json", s.getTileJSON)
	e.GET("/tiles/:z/:x/:y", s.getTile)
	e.GET("/export.csv", s.exportCSV)
	e.GET("/export.geojson", s.exportGeoJSON)
	e.GET("/ledger.csv", s.ledgerCSV)

	e.GET("/healthz", s.getHealth)
	e.GET("/readyz", s.getReady)
	e.GET("/openapi.json", s.getOpenAPI)

	e.GET("/", s.pageTriage)
	e.GET("/letters/:id", s.pageLetter)
	e.POST("/letters/:id/undo", s.formUndo)
	e.POST("/letters/:id/:action", s.formAction)
	e.GET("/redrives", s.pageRedrives)
	e.POST("/redrives", s.formRedrive)
	e.GET("/redrives/:id", s.pageRedrive)
	e.POST("/redrives/:id/:verb", s.formControl)
	e.GET("/redrives/:id/tiles/:z/:x/:y", s.getRedriveTile)
	e.GET("/ledger", s.pageLedger)
	if s.demo != nil {
		e.POST("/demo/sink", s.formDemoSink)
	}
	e.GET("/static/*", echo.WrapHandler(static.Handler()))
}

// ServeHTTP answers one request: HEAD as GET (RFC 9110 §9.3.2), whose body net/http
// leaves out. Echo routes by the method before any middleware of its own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}
	s.echo.ServeHTTP(w, r)
}

// Timeouts of a connection. A body may be large and its sender slow; a header may
// not.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 2 * time.Minute
	writeTimeout      = 2 * time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Serve answers requests on a listener until ctx ends, and then lets those under
// way finish, for at most grace.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	defer s.writeRefusals(ctx)()
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	defer stop()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}

// actorOf names who acts, until there is sign-in.
func actorOf(form bool) string {
	if form {
		return "operator"
	}
	return "api"
}

// action reads the last segment of a path as an action.
func action(c echo.Context) (dlq.Action, error) {
	a := dlq.Action(c.Param("action"))
	if !a.Valid() {
		return "", echo.ErrNotFound
	}
	return a, nil
}

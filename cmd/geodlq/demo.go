package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// iberia is the region over which the demo's sink is down.
var iberia = struct{ west, south, east, north float64 }{-9.6, 36.0, 3.3, 43.8}

// demoSink is a sink of the demo's own: it takes every feature, but for those over
// Iberia while it is down there.
type demoSink struct {
	down     atomic.Bool
	listener net.Listener
	server   *http.Server
}

func newDemoSink() (*demoSink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &demoSink{listener: listener}
	d.down.Store(true)
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: 5 * time.Second}
	go d.server.Serve(listener)
	return d, nil
}

func (d *demoSink) url() string           { return "http://" + d.listener.Addr().String() + "/features" }
func (d *demoSink) close()                { d.server.Close() }
func (d *demoSink) SinkDown() bool        { return d.down.Load() }
func (d *demoSink) SetSinkDown(down bool) { d.down.Store(down) }
func (d *demoSink) Region() string        { return "Iberia" }

// ServeHTTP takes a GeoJSON Feature in EPSG:4326.
func (d *demoSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return
	}
	var feature struct {
		Geometry *struct {
			Coordinates json.RawMessage `json:"coordinates"`
		} `json:"geometry"`
	}
	if err := json.Unmarshal(body, &feature); err != nil {
		http.Error(w, "not a feature", http.StatusBadRequest)
		return
	}
	if d.down.Load() && feature.Geometry != nil && overIberia(feature.Geometry.Coordinates) {
		http.Error(w, "WFS over Iberia is down for maintenance", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// overIberia looks at the first position alone.
func overIberia(coordinates json.RawMessage) bool {
	for {
		var position [2]float64
		if json.Unmarshal(coordinates, &position) == nil {
			return position[0] >= iberia.west && position[0] <= iberia.east &&
				position[1] >= iberia.south && position[1] <= iberia.north
		}
		var members []json.RawMessage
		if json.Unmarshal(coordinates, &members) != nil || len(members) == 0 {
			return false
		}
		coordinates = members[0]
	}
}

// runDemo serves with retries and timeouts so short that there is something to
// triage within seconds, and sends a sample incident through its own door.
func runDemo(ctx context.Context, p *process) error {
	sink, err := newDemoSink()
	if err != nil {
		return err
	}
	defer sink.close()
	p.config.forDemo(sink.url())
	logger, err := p.logger()
	if err != nil {
		return err
	}
	return p.serve(ctx, true, true, sink, func(ctx context.Context, url string) {
		began := time.Now()
		sent, err := sendIncident(ctx, url, time.Now())
		if err != nil {
			logger.Error("the sample incident broke off", "error", err)
			return
		}
		fmt.Fprintf(p.stdout, "sent %d events and reports in %.1f s; triage them at %s/\n", sent, time.Since(began).Seconds(), url)
		fmt.Fprintln(p.stdout, "the sink is down over Iberia until you bring it back with the switch on the page; Ctrl-C ends the demo")
	})
}

// forDemo shortens what the user did not set.
func (c *config) forDemo(sinkURL string) {
	for variable, set := range map[string]func(){
		"GEODLQ_SINK_URL":     func() { c.sinkURL = sinkURL },
		"GEODLQ_SINK_TIMEOUT": func() { c.sinkTimeout = duration(2 * time.Second) },
		"GEODLQ_MAX_ATTEMPTS": func() { c.maxAttempts = 3 },
		"GEODLQ_RETRY_BASE":   func() { c.retryBase = duration(200 * time.Millisecond) },
		"GEODLQ_RETRY_MAX":    func() { c.retryMax = duration(time.Second) },
		"GEODLQ_LOG_LEVEL":    func() { c.logLevel = slog.LevelWarn.String() },
	} {
		if !c.explicit[variable] {
			set()
		}
	}
}

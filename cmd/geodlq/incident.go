package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// message is one request of the sample incident.
type message struct {
	path    string
	headers map[string]string
	body    string
}

// incidentConns is how many requests of the incident are under way at once.
const incidentConns = 16

// sendIncident sends a sample incident: a few thousand events, most of them good.
// Its keys carry the time, so that each demo has one of its own.
func sendIncident(ctx context.Context, url string, now time.Time) (int, error) {
	messages := incident(now)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: incidentConns}, Timeout: time.Minute}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(incidentConns)
	for _, m := range messages {
		group.Go(func() error { return m.send(ctx, client, url) })
	}
	return len(messages), group.Wait()
}

func (m message) send(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+m.path, strings.NewReader(m.body))
	if err != nil {
		return err
	}
	for name, value := range m.headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if response.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %s", m.path, response.Status, bytes.TrimSpace(answer))
	}
	return nil
}

// place is a centre around which events happen, in degrees.
type place struct{ lon, lat, spread float64 }

var (
	europe = []place{
		{13.40, 52.52, 0.5}, {2.35, 48.86, 0.5}, {9.19, 45.46, 0.4}, {16.37, 48.21, 0.4}, {21.01, 52.23, 0.5},
		{4.90, 52.37, 0.3}, {11.58, 48.14, 0.4}, {14.42, 50.08, 0.4}, {18.07, 59.33, 0.4}, {12.57, 55.68, 0.3},
		{23.73, 37.98, 0.3}, {-0.13, 51.51, 0.5}, {24.94, 60.17, 0.3}, {19.04, 47.50, 0.3},
	}
	spainAndPortugal = []place{
		{-3.70, 40.42, 0.8}, {-9.14, 38.72, 0.3}, {2.10, 41.60, 0.3}, {-0.70, 39.47, 0.3}, {-5.98, 37.39, 0.4}, {-8.50, 41.20, 0.3}, {-2.90, 43.00, 0.3},
	}
	pacific = []place{{139.69, 35.69, 0.8}, {151.21, -33.87, 0.8}, {126.98, 37.57, 0.5}, {174.76, -36.85, 0.5}}
)

// sampler makes the messages of an incident from one seed.
type sampler struct {
	rand     *rand.Rand
	run      string
	messages []message
}

// incident lists the messages: what goes wrong is mixed with what goes well.
func incident(now time.Time) []message {
	s := &sampler{rand: rand.New(rand.NewPCG(73, 4326)), run: now.UTC().Format("20060102T150405")}
	s.many(2000, func(i int) { s.point("fleet-eu", "geofence_upsert", i, europe) })
	s.many(400, func(i int) { s.parcel("muni-0417", "cadastre_import", i, europe) })
	s.many(260, func(i int) { s.point("wfs-iberia", "features_sync", i, spainAndPortugal) })
	s.many(120, s.deprecatedCRS)
	s.many(90, s.swappedAxes)
	s.many(80, s.metresAsDegrees)
	s.many(60, s.overAntimeridian)
	s.many(60, s.crossedRing)
	s.many(40, s.cutShort)
	s.many(72, s.failedTile)
	s.rand.Shuffle(len(s.messages), func(i, j int) { s.messages[i], s.messages[j] = s.messages[j], s.messages[i] })
	return s.messages
}

func (s *sampler) many(n int, make func(i int)) {
	for i := range n {
		make(i)
	}
}

func (s *sampler) near(places []place) (lon, lat float64) {
	p := places[s.rand.IntN(len(places))]
	return p.lon + s.rand.NormFloat64()*p.spread/2, p.lat + s.rand.NormFloat64()*p.spread/3
}

func (s *sampler) event(source, task string, i int, body string, headers map[string]string) {
	all := map[string]string{
		"Content-Type": "application/geo+json", "Geodlq-Source": source, "Geodlq-Task": task,
		"Idempotency-Key": fmt.Sprintf("%s/%04d", s.run, i),
	}
	for name, value := range headers {
		all[name] = value
	}
	s.messages = append(s.messages, message{"/v1/events", all, body})
}

func feature(id int, geometry string) string {
	return fmt.Sprintf(`{"type":"Feature","id":%d,"properties":{"name":"site-%d"},"geometry":%s}`, id, id, geometry)
}

func pointGeometry(x, y float64) string {
	return fmt.Sprintf(`{"type":"Point","coordinates":[%.6f,%.6f]}`, x, y)
}

func ringGeometry(ring [][2]float64) string {
	positions := make([]string, len(ring))
	for i, p := range ring {
		positions[i] = fmt.Sprintf("[%.6f,%.6f]", p[0], p[1])
	}
	return `{"type":"Polygon","coordinates":[[` + strings.Join(positions, ",") + `]]}`
}

func (s *sampler) point(source, task string, i int, places []place) {
	lon, lat := s.near(places)
	s.event(source, task, i, feature(i, pointGeometry(lon, lat)), nil)
}

func (s *sampler) parcel(source, task string, i int, places []place) {
	lon, lat := s.near(places)
	d := 0.002 + s.rand.Float64()*0.01
	s.event(source, task, i, feature(i, ringGeometry([][2]float64{{lon, lat}, {lon + d, lat}, {lon + d, lat + d}, {lon, lat + d}, {lon, lat}})), nil)
}

// deprecatedCRS: a survey's extracts claim a code that EPSG withdrew and PostGIS
// does not list.
func (s *sampler) deprecatedCRS(i int) {
	const code = "EPSG:2300" // Qornoq 1927 / Greenland zone 3 east
	x, y := 500_000+s.rand.NormFloat64()*20_000, 300_000+s.rand.NormFloat64()*20_000
	s.event("survey-gl", "cadastre_import", i, feature(i, pointGeometry(x, y)), map[string]string{"Content-Crs": code})
}

// swappedAxes: latitude first, and far enough east to be found out.
func (s *sampler) swappedAxes(i int) {
	lon, lat := s.near(pacific)
	s.event("ais-pacific", "sensor_ingest", i, feature(i, pointGeometry(lat, lon)), nil)
}

// metresAsDegrees: Web Mercator without a claim.
func (s *sampler) metresAsDegrees(i int) {
	lon, lat := s.near(europe)
	const r = 6378137.0
	x, y := r*lon*math.Pi/180, r*math.Log(math.Tan(math.Pi/4+lat*math.Pi/360))
	s.event("webmap-export", "features_sync", i, feature(i, pointGeometry(x, y)), nil)
}

// overAntimeridian: half run on past 180 and are cut there; half wrapped round the
// world and are refused.
func (s *sampler) overAntimeridian(i int) {
	lon, lat := 178.5+s.rand.Float64(), -18+s.rand.NormFloat64()*2
	if i%2 == 1 {
		lon += 360
	}
	s.event("fisheries-fj", "geofence_upsert", i, feature(i, ringGeometry([][2]float64{{lon, lat}, {lon + 2, lat}, {lon + 2, lat + 1}, {lon, lat + 1}, {lon, lat}})), nil)
}

// crossedRing: a bow tie.
func (s *sampler) crossedRing(i int) {
	lon, lat := s.near(europe)
	d := 0.05 + s.rand.Float64()*0.2
	s.event("fleet-eu", "geofence_upsert", 5000+i, feature(i, ringGeometry([][2]float64{{lon, lat}, {lon + d, lat + d}, {lon + d, lat}, {lon, lat + d}, {lon, lat}})), nil)
}

// cutShort: the connection dropped in the middle of a body.
func (s *sampler) cutShort(i int) {
	lon, lat := s.near(europe)
	body := feature(i, pointGeometry(lon, lat))
	s.event("buoy-17", "sensor_ingest", i, body[:len(body)-3-s.rand.IntN(30)], nil)
}

// failedTile: a tiler reports the tiles along one orbit of a satellite.
func (s *sampler) failedTile(i int) {
	const z, orbit = 9, 73
	lon := math.Mod(30-float64(i)*1.1+540, 360) - 180
	lat := 70 * math.Sin((float64(i)/72-0.5)*math.Pi*0.95)
	n := math.Exp2(z)
	x := int((lon + 180) / 360 * n)
	y := int((1 - math.Asinh(math.Tan(lat*math.Pi/180))/math.Pi) / 2 * n)
	s.messages = append(s.messages, message{"/v1/dead-letters", map[string]string{"Content-Type": "application/json"}, fmt.Sprintf(
		`{"work_key":"%s/%d/%d/%d","task":"raster_tile","source":"dem-mosaic","error":"killed at 2.1 GiB while reading window %d 0 8192 8192",`+
			`"traceback":"Traceback (most recent call last):\n  File \"tiler.py\", line 214, in render\nMemoryError","class":"oom","exit_code":137,`+
			`"tile":{"z":%d,"x":%d,"y":%d},"params":{"resampling":"cubic","zoom":%d},"labels":{"orbit":%d},`+
			`"payload_ref":{"uri":"s3://dem/orbit-%d.tif","window":[%d,0,8192,8192],"nodata":-9999},"code_version":"v43","run_id":"nightly-%s","host":"tiler-3"}`,
		s.run, z, x, y, i*8192, z, x, y, z, orbit, orbit, i*8192, s.run)})
}

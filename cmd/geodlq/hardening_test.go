package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geodlq/internal/pgtest"

	"golang.org/x/sync/errgroup"
)

func TestOneMemberThatIsNoFeatureDiesAlone(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("fc", `{"type":"FeatureCollection","features":[`+berlin+`,null,{"type":"feature"},{"type":"Point","coordinates":[1,2]},`+berlin+`]}`)
	parent := s.settle("fc")
	if n := len(parent["children"].([]any)); parent["state"] != "split" || n != 5 {
		t.Fatalf("%v", parent)
	}
	for i, want := range []string{"processed", "dead", "dead", "dead", "processed"} {
		child := s.settle(fmt.Sprintf("fc#%d", i))
		if child["state"] != want {
			t.Errorf("%d is %v, want %s", i, child["state"], want)
		}
		if want == "dead" && properties(s.letter(child["letter_id"]))["stage"] != "parse" {
			t.Errorf("%d: %v", i, s.letter(child["letter_id"]))
		}
	}
}

func TestCloudEventsOfLongIDsAreNotTakenForEachOther(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	keys := map[string]bool{}
	for _, id := range []string{strings.Repeat("y", 600) + "1", strings.Repeat("y", 600) + "2", "\xff1", "\xff2"} {
		header := map[string]string{"Content-Type": "application/geo+json", "Ce-Specversion": "1.0", "Ce-Id": id, "Ce-Source": "/s", "Ce-Type": "t"}
		a := s.do("POST", "/v1/events", header, []byte(berlin))
		if a.status != 202 || a.json(t)["duplicate"] != false {
			t.Errorf("%d %s", a.status, a.body)
		}
		keys[a.json(t)["work_key"].(string)] = true
		if again := s.do("POST", "/v1/events", header, []byte(berlin)); again.json(t)["duplicate"] != true {
			t.Errorf("again: %s", again.body)
		}
	}
	if len(keys) != 4 {
		t.Errorf("%v", keys)
	}
}

func TestBatchesOfTheSameKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	var records []string
	for i := range 3000 {
		records = append(records, fmt.Sprintf(`{"type":"Point","coordinates":[%d,%d]}`, i%180, i%90+i/1000))
	}
	forth := []byte(strings.Join(records, "\n"))
	for i, j := 0, len(records)-1; i < j; i, j = i+1, j-1 {
		records[i], records[j] = records[j], records[i]
	}
	back := []byte(strings.Join(records, "\n"))
	var sending sync.WaitGroup
	for round := range 6 {
		body := forth
		if round%2 == 1 {
			body = back
		}
		sending.Go(func() {
			if a := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/x-ndjson"}, body); a.status != 202 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	sending.Wait()
}

func TestUploadsThatDoNotComeHoldNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "1MiB", "GEODLQ_IN_FLIGHT_MAX": "2MiB"})
	for range 600 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n")
	}
	time.Sleep(200 * time.Millisecond)
	if a := s.post("large", berlin+strings.Repeat(" ", 800_000)); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestALargePayloadIsGivenOutWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "1MiB", "GEODLQ_IN_FLIGHT_MAX": "2MiB"})
	s.post("large", bowtie+strings.Repeat(" ", 900_000))
	letter := fmt.Sprintf("%.0f", s.settle("large")["letter_id"])
	payload := func() int { return s.get("/v1/dead-letters/" + letter + "/payload").status }
	if status := payload(); status != 200 {
		t.Errorf("%d", status)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n%s", strings.Repeat(" ", 1_000_000))
	time.Sleep(time.Second) // asking sooner might take the room that it wants
	if status := payload(); status != 503 {
		t.Errorf("%d beside an upload", status)
	}
	page := s.do("GET", "/letters/"+letter, map[string]string{"Accept": "text/html"}, nil)
	if page.status != 200 || !strings.Contains(string(page.body), "The payload is not shown now.") {
		t.Errorf("%d", page.status)
	}
	conn.Close()
	s.eventually("the payload to be given out", func() bool { return payload() == 200 })
}

func TestARefusedBodyIsReadSoFarThatItsSenderSeesWhy(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "1MiB", "GEODLQ_IN_FLIGHT_MAX": "2MiB"})
	for range 5 {
		response, err := http.Post(s.url+"/v1/events", "application/geo+json", bytes.NewReader(make([]byte, 20<<20)))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 413 {
			t.Errorf("%d", response.StatusCode)
		}
	}
}

func TestADeepPayloadMakesNoHugePage(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("deep", `{"type":"Feature","properties":{"n":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`},"geometry":null}`)
	id := s.settle("deep")["letter_id"]
	if a := s.do("GET", fmt.Sprintf("/letters/%.0f", id), map[string]string{"Accept": "text/html"}, nil); a.status != 200 || len(a.body) > 300_000 {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
}

func TestAnUnknownOutcomeIsNotForgottenByALaterTry(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	var asked int
	sink.answers(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(422)
	})
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.post("k", berlin)
	if p := properties(s.letter(s.settle("k")["letter_id"])); p["outcome_unknown"] != true || p["http_status"] != 422.0 {
		t.Errorf("%v", p)
	}
}

func TestALargeGeometryIsKeptThinnedOutAndItsPayloadWhole(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	star := &generator{Kind: "star_polygon", Vertices: 20_000, Center: [2]float64{10, 50}, RInner: 0.8, ROuter: 1, Swap: []int{10, 5000}}
	body := star.body(t)
	s.post("star", string(body))
	id := s.settle("star")["letter_id"]
	l := s.letter(id)
	text, _ := json.Marshal(l["geometry"])
	if p := properties(l); p["geom_simplified"] != true || p["located_by"] != "geometry" || len(text) > 200_000 || l["geometry"] == nil {
		t.Errorf("%d bytes of geometry, %v", len(text), p)
	}
	if a := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", id)); !bytes.Equal(a.body, body) {
		t.Error("the payload is not whole")
	}
	if n := s.count("select count(*) from failure_geometries"); n != 0 {
		t.Error("the geometry was left behind")
	}
}

func TestAReportOnAnEventsLetterLeavesItsPayloadAlone(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("mix", bowtie)
	id := s.settle("mix")["letter_id"]
	before := properties(s.letter(id))["sha256"]
	s.report(map[string]any{"work_key": "mix", "payload": map[string]any{"a": 1}}, "")
	after := properties(s.letter(id))
	if after["sha256"] != before || after["attempts"] != 2.0 || after["media_type"] != "application/geo+json" {
		t.Errorf("%v", after)
	}
}

func TestEncodingsThatAreStackedAreNotReadHalf(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	request, _ := http.NewRequest("POST", s.url+"/v1/events", strings.NewReader(berlin))
	request.Header["Content-Type"] = []string{"application/geo+json"}
	request.Header["Content-Encoding"] = []string{"gzip", "br"}
	request.Header["Content-Crs"] = []string{"EPSG:4326", "EPSG:4326"}
	request.Header["Idempotency-Key"] = []string{"stacked"}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	p := properties(s.letter(s.settle("stacked")["letter_id"]))
	if p["stage"] != "envelope" || p["class"] != "unsupported_format" || p["src_crs"] != "EPSG:4326" {
		t.Errorf("%v", p)
	}
}

func TestManyLargeBodiesAreWorkedOnAFewAtATime(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_IN_FLIGHT_MAX": "16MiB", "GEODLQ_BODY_MAX": "4MiB", "GEODLQ_SINK_TIMEOUT": "30s"})
	positions := strings.TrimSuffix(strings.Repeat("[1.2345678,2.3456789],", 150_000), ",")
	for i := range 6 {
		if a := s.post(fmt.Sprintf("large-%d", i), `{"type":"MultiPoint","coordinates":[`+positions+`]}`); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for i := range 6 {
		if got := s.settle(fmt.Sprintf("large-%d", i)); got["state"] != "processed" || got["tries"] != 1.0 {
			t.Errorf("%v", got)
		}
	}
}

func TestALargestBodyThatTakesLongDoesNotKeepLargeOnesWaiting(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	sink.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1<<20 {
			<-hold
		}
	})
	s := startServer(t, map[string]string{
		"GEODLQ_IN_FLIGHT_MAX": "16MiB", "GEODLQ_BODY_MAX": "4MiB", "GEODLQ_SINK_URL": sink.URL, "GEODLQ_SINK_TIMEOUT": "60s",
	})
	body := func(n int) string {
		return `{"type":"Feature","geometry":null,"properties":{"a":"` + strings.Repeat("x", n) + `"}}`
	}
	s.post("largest", body(3_500_000))
	s.eventually("the sink to be asked", func() bool { keys, _ := sink.taken(); return len(keys) == 1 })
	s.post("large", body(200_000))
	if got := s.settle("large"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	if got := s.get(eventPath("largest")).json(t); got["state"] != "accepted" {
		t.Errorf("the largest was not held: %v", got)
	}
	release()
	s.settle("largest")
}

func TestBytesThatChangedInTheDatabaseAreNeverProcessedOrGivenOut(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stop()
	url := s.env["DATABASE_URL"]
	s = startCommand(t, "web", url, nil)
	s.post("k", berlin)
	s.exec("update events set body = convert_to(replace(convert_from(body, 'UTF8'), '13.4', '14.4'), 'UTF8')")
	s = startCommand(t, "serve", url, nil)
	id := s.settle("k")["letter_id"]
	if p := properties(s.letter(id)); p["stage"] != "envelope" || !strings.Contains(p["error"].(string), "SHA-256") {
		t.Errorf("%v", p)
	}
	if a := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", id)); a.status != 500 || strings.Contains(string(a.body), "14.4") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := s.count("select count(*) from features"); n != 0 {
		t.Error("it was processed")
	}
}

func TestHEADIsAnsweredAsGETWithoutABody(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, path := range []string{"/healthz", "/readyz", "/", "/v1/stats", "/v1/dead-letters", "/openapi.json"} {
		if a := s.do("HEAD", path, nil, nil); a.status != 200 || len(a.body) > 0 {
			t.Errorf("%s: %d, %d bytes", path, a.status, len(a.body))
		}
	}
	if a := s.do("HEAD", "/letters/1", nil, nil); a.status != 404 {
		t.Errorf("%d", a.status)
	}
}

// TestWhatIsSmallOnTheWireTakesNoGigabytes sends what grows once it is taken in: gzip
// bodies of kilobytes that hold megabytes, and batches of tiny records, each of which is
// kept with the headers of the request.
func TestWhatIsSmallOnTheWireTakesNoGigabytes(t *testing.T) {
	s := newServer(t, pgtest.URL(t), map[string]string{"GEODLQ_SINK_TIMEOUT": "30s"})
	p := s.startWeighed("serve")
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	fmt.Fprintf(zw, `{"type":"Feature","properties":{"a":"%s"},"geometry":{"type":"Point","coordinates":[1,2]}}`, strings.Repeat("a", 14<<20))
	zw.Close()
	if zipped.Len() > 16<<10 {
		t.Fatalf("%d bytes", zipped.Len())
	}
	for i := range 40 {
		a := s.do("POST", "/v1/events", map[string]string{
			"Content-Type": "application/geo+json", "Content-Encoding": "gzip", "Idempotency-Key": fmt.Sprintf("zipped-%d", i),
		}, zipped.Bytes())
		if a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	headers := map[string]string{"Content-Type": "application/x-ndjson"}
	for i := range 6 {
		headers[[]string{"User-Agent", "Traceparent", "Content-Crs", "Ce-A", "Ce-B", "Ce-C"}[i]] = strings.Repeat("x", 900)
	}
	if a := s.do("POST", "/v1/events", headers, bytes.Repeat([]byte("1\n"), 100_000)); a.status != 413 || !strings.Contains(string(a.body), "in parts") {
		t.Errorf("%d %.200s", a.status, a.body)
	}
	if a := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/x-ndjson"}, bytes.Repeat([]byte("1\n"), 1000)); a.status != 202 {
		t.Errorf("%d %.200s", a.status, a.body)
	}
	for i := range 40 {
		if got := s.settle(fmt.Sprintf("zipped-%d", i)); got["state"] != "processed" {
			t.Errorf("%v", got)
		}
	}
	wantPeak(t, p)
}

// wantPeak wants no more memory than the 300 MB that a process may take, and a third for
// what a busy machine leaves uncollected.
func wantPeak(t *testing.T, p *weighed) {
	t.Helper()
	if peak := p.peak(); peak > 400 {
		t.Errorf("it took %.0f MB", peak)
	} else {
		t.Logf("it took %.0f MB", peak)
	}
}

// TestWhatIsAllCoordinatesTakesNoGigabytes sends bodies that grow as they are parsed, each
// kind into a process of its own.
func TestWhatIsAllCoordinatesTakesNoGigabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	line := `{"type":"LineString","coordinates":[` + strings.TrimSuffix(strings.Repeat("[10.25,20.5],[11.5,20.75],", 990_000), ",") + `]}`
	feature := `{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":null}`
	report := func(i int) string {
		return fmt.Sprintf(`{"work_key":"r-%d","task":"t","source":"s","error":"e","geometry":%s}`, i, line)
	}
	for _, c := range []struct {
		name, path, mediaType string
		n, taken              int // requests at once, and how many are taken at least
		body                  func(i int) string
	}{
		{"lines", "/v1/events", "application/geo+json", 8, 1, func(int) string { return line }},
		{"reports", "/v1/dead-letters", "application/json", 8, 1, report},
		{"CloudEvents", "/v1/events", "application/cloudevents+json", 8, 1, func(i int) string {
			return fmt.Sprintf(`{"specversion":"1.0","type":"t","source":"s","id":"%d","data":%s}`, i, line)
		}},
		{"CloudEvents of many members", "/v1/events", "application/cloudevents+json", 8, 1, func(i int) string {
			var b strings.Builder
			fmt.Fprintf(&b, `{"specversion":"1.0","type":"t","source":"s","id":"%d","data":{"type":"Point","coordinates":[1,2]}`, i)
			for n := range 2_000_000 {
				fmt.Fprintf(&b, `,"%x":1`, n)
			}
			return b.String() + "}"
		}},
		{"a batch of many records", "/v1/events", "application/geo+json-seq", 2, 1, func(int) string { return strings.Repeat("\x1e"+feature+"\n", 100_000) }},
		{"a collection of many features", "/v1/events", "application/geo+json", 1, 1, func(int) string {
			return `{"type":"FeatureCollection","features":[` + strings.TrimSuffix(strings.Repeat(feature+",", 100_000), ",") + `]}`
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, pgtest.URL(t), map[string]string{"GEODLQ_SINK_TIMEOUT": "30s", "GEODLQ_WORKERS": ""})
			p := s.startWeighed("serve")
			var group errgroup.Group
			var taken atomic.Int64
			for i := range c.n {
				group.Go(func() error {
					a := s.do("POST", c.path, map[string]string{"Content-Type": c.mediaType, "Idempotency-Key": fmt.Sprint("k", i)}, []byte(c.body(i)))
					switch a.status {
					case 201, 202:
						taken.Add(1)
					case 503:
					default:
						return fmt.Errorf("%d %.300s", a.status, a.body)
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			if int(taken.Load()) < c.taken {
				t.Errorf("%d were taken", taken.Load())
			}
			s.eventually("all to be processed", func() bool { return s.count("select count(*) from events where finished_at is null") == 0 })
			if n := s.count("select count(*) from events where state not in ('processed', 'split')"); n != 0 {
				t.Errorf("%d are not processed", n)
			}
			wantPeak(t, p)
		})
	}
}

// TestWhatTheSpoolHeldIsLoadedBesideTheWorkInBoundedMemory loads large bodies that came in
// while the database was away, each of which a worker takes up at once.
func TestWhatTheSpoolHeldIsLoadedBesideTheWorkInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	pg := startPostgres(t)
	s := newServer(t, pg.cluster.URL(), map[string]string{"GEODLQ_SINK_TIMEOUT": "30s", "GEODLQ_WORKERS": ""})
	p := s.startWeighed("serve")
	pg.stop(fast)
	line := `{"type":"LineString","coordinates":[` + strings.TrimSuffix(strings.Repeat("[10.25,20.5],[11.5,20.75],", 990_000), ",") + `]}`
	const n = 6
	for i := range n {
		if a := s.post(fmt.Sprint("spooled-", i), line); a.status != 202 || a.json(t)["spooled"] != true {
			t.Fatalf("%d %.300s", a.status, a.body)
		}
		report := fmt.Sprintf(`{"work_key":"r-%d","task":"t","source":"s","error":"e","geometry":%s}`, i, line)
		if a := s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json"}, []byte(report)); a.status != 202 {
			t.Fatalf("%d %.300s", a.status, a.body)
		}
	}
	pg.start()
	s.db.Reset()
	s.eventually("all to be processed", func() bool {
		return s.count("select count(*) from events where state = 'processed'") == n && s.count("select count(*) from dead_letters") == n
	})
	wantPeak(t, p)
}

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
	"testing"
	"time"

	"geodlq/internal/pgtest"
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

func TestUploadsThatDoNotComeHoldLittle(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "1MiB", "GEODLQ_IN_FLIGHT_MAX": "2MiB"})
	for range 300 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n")
	}
	time.Sleep(200 * time.Millisecond)
	if a := s.post("small", berlin); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
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
	if peak := p.peak(); peak > 450 {
		t.Errorf("it took %.0f MB", peak)
	}
}

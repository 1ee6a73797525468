package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	berlin = `{"type":"Feature","properties":{"name":"site-1"},"geometry":{"type":"Point","coordinates":[13.4,52.5]}}`
	bowtie = `{"type":"Feature","properties":{},"geometry":{"type":"Polygon","coordinates":[[[10,50],[12,52],[12,50],[10,52],[10,50]]]}}`
)

func TestAGoodFeatureIsProcessedOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	first := s.post("good", berlin)
	if got := first.json(t); first.status != 202 || got["work_key"] != "good" || got["state"] != "accepted" || got["duplicate"] != false || got["spooled"] != false {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if event := s.settle("good"); event["state"] != "processed" || event["tries"] != 1.0 || event["attempts"] != 0.0 || event["letter_id"] != nil {
		t.Errorf("%v", event)
	}
	again := s.post("good", berlin)
	if got := again.json(t); again.status != 202 || got["duplicate"] != true || got["state"] != "processed" || got["job_id"] != first.json(t)["job_id"] {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	if other := s.post("good", bowtie); other.status != 409 || other.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("another body: %d %s", other.status, other.body)
	}
	if n := s.count("select count(*) from features where work_key = 'good' and ST_AsText(geom) = 'POINT(13.4 52.5)' and properties->>'name' = 'site-1'"); n != 1 {
		t.Errorf("features holds it %d times", n)
	}
	if n := s.count("select count(*) from events where body is not null"); n != 0 {
		t.Error("the body of a processed event is kept")
	}
}

func TestABowtieIsOneLetterAtValidateWithThePlaceOfItsFlaw(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("bowtie", bowtie)
	l := s.letter(s.settle("bowtie")["letter_id"])
	p := properties(l)
	at := p["invalid_at"].([]any)
	if p["stage"] != "validate" || p["class"] != "invalid_geometry" || at[0] != 11.0 || at[1] != 51.0 || l["geometry"] == nil {
		t.Errorf("%v", l)
	}
	if n := s.count("select count(*) from dead_letters"); n != 1 {
		t.Errorf("%d letters", n)
	}
	// In UTM it lies where UTM says, flaw included.
	s.do("POST", "/v1/events", map[string]string{"Content-Type": "text/plain", "Idempotency-Key": "utm", "Content-Crs": "EPSG:32633"},
		[]byte("POLYGON((500000 4600000,600000 4700000,600000 4600000,500000 4700000,500000 4600000))"))
	p = properties(s.letter(s.settle("utm")["letter_id"]))
	at = p["invalid_at"].([]any)
	if lon, lat := at[0].(float64), at[1].(float64); lon < 15 || lon > 16.5 || lat < 41 || lat > 43 || p["located_by"] != "geometry" || p["src_crs"] != "EPSG:32633" {
		t.Errorf("%v", p)
	}
}

func TestRandomBytesAreOneLetterWhosePayloadComesBackByteForByte(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i, mediaType := range []string{"application/geo+json", "application/octet-stream", "application/pdf", "", "text/plain; charset=\"", "no/such;;"} {
		body := make([]byte, 5000)
		_, _ = rand.Read(body)
		key := fmt.Sprintf("random-%d", i)
		header := map[string]string{"Idempotency-Key": key}
		if mediaType != "" {
			header["Content-Type"] = mediaType
		}
		if a := s.do("POST", "/v1/events", header, body); a.status != 202 {
			t.Fatalf("%q: %d %s", mediaType, a.status, a.body)
		}
		id := s.settle(key)["letter_id"]
		a := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", id))
		if !bytes.Equal(a.body, body) {
			t.Errorf("%q: the payload came back otherwise", mediaType)
		}
		if got := a.header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%q: the payload may be sniffed", mediaType)
		}
	}
	if n := s.count("select count(*) from dead_letters"); n != 6 {
		t.Errorf("%d letters", n)
	}
}

func TestKeysWithSlashHashColonAndPercentAreFoundByTheirPath(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, c := range []struct{ source, key, want string }{
		{"", "a/b", "a/b"}, {"", "a%2Fb", "a%2Fb"}, {"", "a%252Fb", "a%252Fb"}, {"", "x:y", "default:x:y"}, {"", "ü ?&=+", "ü ?&=+"},
		{"fleet", "a/b", "fleet:a/b"}, {"fleet", "x:y", "fleet:x:y"}, {"", "..", ".."}, {"", ".", "."}, {"", "sha256:00", "default:sha256:00"},
	} {
		header := map[string]string{"Content-Type": "application/geo+json", "Idempotency-Key": c.key}
		if c.source != "" {
			header["Geodlq-Source"] = c.source
		}
		a := s.do("POST", "/v1/events", header, []byte(berlin))
		if a.status != 202 || a.json(t)["work_key"] != c.want {
			t.Errorf("%v: %d %s", c, a.status, a.body)
			continue
		}
		path := eventPath(c.want)
		if c.want == "." || c.want == ".." {
			path = "/v1/events/" + strings.ReplaceAll(c.want, ".", "%2E")
		}
		if got := s.get(path); got.status != 200 || got.json(t)["work_key"] != c.want {
			t.Errorf("%v: GET %s: %d %s", c, path, got.status, got.body)
		}
	}
	// Children are found with %23.
	s.post("c", `{"type":"FeatureCollection","features":[`+berlin+`]}`)
	s.settle("c")
	if got := s.get("/v1/events/c%230"); got.status != 200 || got.json(t)["parent"] != "c" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.get("/v1/events/none"); got.status != 404 {
		t.Errorf("unknown key: %d", got.status)
	}
}

func TestTheDoorRefusesWhatHasNoGoodIdentity(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, header := range []map[string]string{
		{"Idempotency-Key": "a#0"}, {"Geodlq-Source": "a:b"}, {"Geodlq-Source": "default"}, {"Geodlq-Source": "sha256"},
		{"Idempotency-Key": strings.Repeat("k", 600)}, {"Idempotency-Key": "a\xffb"}, {"Geodlq-Task": strings.Repeat("t", 500)},
		{"Ce-Specversion": "1.0", "Ce-Id": "1"},
	} {
		header["Content-Type"] = "application/geo+json"
		if a := s.do("POST", "/v1/events", header, []byte(berlin)); a.status != 400 {
			t.Errorf("%v: %d %s", header, a.status, a.body)
		}
	}
	if n := s.count("select count(*) from events"); n != 0 {
		t.Errorf("%d events were stored", n)
	}
}

func TestContentWithoutAKeyIsADuplicateWithinTheWindowAlone(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	header := map[string]string{"Content-Type": "application/geo+json"}
	send := func() map[string]any {
		a := s.do("POST", "/v1/events", header, []byte(berlin))
		if a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return a.json(t)
	}
	first := send()
	key := first["work_key"].(string)
	if !strings.HasPrefix(key, "sha256:") || first["duplicate"] != false {
		t.Fatalf("%v", first)
	}
	if again := send(); again["duplicate"] != true || again["work_key"] != key {
		t.Errorf("within the window: %v", again)
	}
	for n := 2; n <= 3; n++ {
		s.exec("update events set received_at = received_at - interval '25 hours'")
		want := fmt.Sprintf("%s~%d", key, n)
		if later := send(); later["duplicate"] != false || later["work_key"] != want {
			t.Errorf("behind the window: %v, want %s", later, want)
		}
		if again := send(); again["duplicate"] != true || again["work_key"] != want {
			t.Errorf("within the new window: %v, want %s", again, want)
		}
	}
	other := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json", "Geodlq-Source": "fleet"}, []byte(berlin))
	if other.json(t)["duplicate"] != false {
		t.Error("another source's content is no duplicate")
	}
}

func TestABatchTakesWhatItCanAndSaysWhatItCannot(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	seq := func(records ...string) []byte {
		var b bytes.Buffer
		for _, r := range records {
			b.WriteString("\x1e" + r + "\n")
		}
		return b.Bytes()
	}
	header := map[string]string{"Content-Type": "application/geo+json-seq", "Idempotency-Key": "b"}
	a := s.do("POST", "/v1/events", header, seq(berlin, bowtie, `{"type":`))
	if got := a.json(t); a.status != 202 || got["accepted"] != 3.0 || len(got["rejected"].([]any)) != 0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for key, want := range map[string]string{"b#0": "processed", "b#1": "dead", "b#2": "dead"} {
		if got := s.settle(key)["state"]; got != want {
			t.Errorf("%s is %v, want %s", key, got, want)
		}
	}
	a = s.do("POST", "/v1/events", header, seq(berlin, berlin, `{"type":`, bowtie))
	got := a.json(t)
	if rejected := got["rejected"].([]any); a.status != 202 || got["accepted"] != 3.0 || len(rejected) != 1 ||
		rejected[0].(map[string]any)["index"] != 1.0 || rejected[0].(map[string]any)["status"] != 409.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// Without a key each stands as if it were sent alone.
	a = s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/x-ndjson"}, []byte(berlin+"\n\n"+bowtie+"\r\n"+berlin))
	events := a.json(t)["events"].([]any)
	alone := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json"}, []byte(berlin)).json(t)
	if len(events) != 3 || events[0].(map[string]any)["work_key"] != alone["work_key"] || alone["duplicate"] != true {
		t.Errorf("%v, alone %v", events, alone)
	}
	if a := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/x-ndjson"}, nil); a.status != 202 || a.json(t)["accepted"] != 0.0 {
		t.Errorf("empty: %d %s", a.status, a.body)
	}
}

func TestACollectionsFeaturesAreUnitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	body := "\xef\xbb\xbf" + `{"type":"FeatureCollection", "crs":{"type":"name","properties":{"name":"EPSG:3857"}}, "features":[ ` +
		`{"type":"Feature","properties":null,"geometry":{"type":"Point","coordinates":[1489199.33,6894701.26]}} , ` + bowtie + ` ]}`
	s.post("fc", body)
	parent := s.settle("fc")
	if children := parent["children"].([]any); parent["state"] != "split" || len(children) != 2 || children[0] != "fc#0" {
		t.Fatalf("%v", parent)
	}
	if n := s.count("select count(*) from features where work_key = 'fc#0' and ST_DWithin(geom, 'SRID=4326;POINT(13.3777 52.5163)', 0.01)"); n != 1 {
		t.Error("the first feature did not inherit its collection's CRS")
	}
	bad := s.settle("fc#1")
	if got := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", bad["letter_id"])); string(got.body) != bowtie {
		t.Errorf("the payload of a feature is %q", got.body)
	}
	// Redriven it fails again, and is not split again.
	s.do("POST", fmt.Sprintf("/v1/dead-letters/%.0f/redrive", bad["letter_id"]), nil, nil)
	s.eventually("the redrive to fail", func() bool { return properties(s.letter(bad["letter_id"]))["redrives"] == 1.0 })
	if p := properties(s.letter(bad["letter_id"])); p["attempts"] != 2.0 || p["status"] != "pending" {
		t.Errorf("%v", p)
	}
	// Encoded, the features' bytes are those of the decoded collection.
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	_, _ = zw.Write([]byte(body))
	_ = zw.Close()
	s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json", "Content-Encoding": "gzip", "Idempotency-Key": "zip"}, zipped.Bytes())
	s.settle("zip")
	if got := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", s.settle("zip#1")["letter_id"])); string(got.body) != bowtie {
		t.Errorf("the payload of a zipped feature is %q", got.body)
	}
}

func TestCloudEventsHaveTheirSourceAndIDForIdentity(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	binary := map[string]string{"Content-Type": "application/geo+json", "Ce-Specversion": "1.0", "Ce-Id": "7", "Ce-Source": "//sensors/a#b", "Ce-Type": "t"}
	a := s.do("POST", "/v1/events", binary, []byte(berlin))
	key := a.json(t)["work_key"].(string)
	if a.status != 202 || key != "//sensors/a%23b|7" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := s.settle(key)["state"]; got != "processed" {
		t.Errorf("binary: %v", got)
	}
	for i, data := range []string{
		`"data":` + berlin, `"datacontenttype":"text/plain","data":"POINT(13.4 52.5)"`,
		`"datacontenttype":"application/octet-stream","data_base64":"AQEAAADNzMzMzMwqQAAAAAAAQEpA"`,
	} {
		body := fmt.Sprintf(`{"specversion":"1.0","id":"s%d","source":"/x","type":"t","subject":"parcel-9",%s}`, i, data)
		a := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}, []byte(body))
		key := a.json(t)["work_key"].(string)
		if key != fmt.Sprintf("/x|s%d", i) || s.settle(key)["state"] != "processed" {
			t.Errorf("structured %d: %s", i, a.body)
		}
		if n := s.count("select count(*) from features where work_key = $1 and subject = 'parcel-9' and ST_AsText(geom) = 'POINT(13.4 52.5)'", key); n != 1 {
			t.Errorf("structured %d: not in features", i)
		}
	}
	a = s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/cloudevents+json"}, []byte(`{"specversion":"1.0","id":"x"}`))
	if l := properties(s.letter(s.settle(a.json(t)["work_key"].(string))["letter_id"])); l["stage"] != "envelope" || l["class"] != "malformed_payload" {
		t.Errorf("a CloudEvent that lacks its source: %v", l)
	}
}

func TestBodiesOverTheLimitAreRefusedAlsoDecoded(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "100KiB", "GEODLQ_IN_FLIGHT_MAX": "200KiB"})
	json := map[string]string{"Content-Type": "application/geo+json"}
	if a := s.do("POST", "/v1/events", json, make([]byte, 100<<10+1)); a.status != 413 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", "/v1/events", json, make([]byte, 100<<10)); a.status != 202 {
		t.Errorf("at the limit: %d %s", a.status, a.body)
	}
	var bomb bytes.Buffer
	zw := gzip.NewWriter(&bomb)
	_, _ = zw.Write(make([]byte, 10<<20))
	_ = zw.Close()
	for _, mediaType := range []string{"application/geo+json", "application/x-ndjson"} {
		a := s.do("POST", "/v1/events", map[string]string{"Content-Type": mediaType, "Content-Encoding": "gzip"}, bomb.Bytes())
		if a.status != 413 {
			t.Errorf("a gzip bomb as %s: %d %s", mediaType, a.status, a.body)
		}
	}
	// Chunked, its length unknown.
	request, _ := http.NewRequest("POST", s.url+"/v1/events", struct{ *bytes.Reader }{bytes.NewReader(make([]byte, 150<<10))})
	request.ContentLength = -1
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 413 {
		t.Errorf("chunked: %d", response.StatusCode)
	}
}

func TestTheDoorSaysBusyOverItsBudgetAndRecovers(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_BODY_MAX": "100KiB", "GEODLQ_IN_FLIGHT_MAX": "150KiB"})
	// One upload holds its share by not ending; again where it was itself refused.
	cut := make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		for done := false; !done; {
			reader, writer := io.Pipe()
			request, _ := http.NewRequest("POST", s.url+"/v1/events", reader)
			request.ContentLength = 100 << 10
			refused := make(chan struct{})
			go func() {
				if response, err := http.DefaultClient.Do(request); err == nil {
					response.Body.Close()
				}
				close(refused)
			}()
			go func() { _, _ = writer.Write(make([]byte, 80<<10)) }()
			select {
			case <-refused:
			case <-cut:
				done = true
			}
			writer.CloseWithError(fmt.Errorf("cut"))
		}
	})
	s.eventually("the door to be busy", func() bool {
		a := s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json"}, make([]byte, 90<<10))
		return a.status == 503 && a.header.Get("Retry-After") != ""
	})
	close(cut)
	holding.Wait()
	s.eventually("the door to recover", func() bool {
		return s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json"}, make([]byte, 90<<10)).status == 202
	})
}

func TestAnOGCURIHoldsItsAxisOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i, c := range []struct{ crs, wkt, want string }{
		{"<http://www.opengis.net/def/crs/EPSG/0/4326>", "POINT(52.5 13.4)", "POINT(13.4 52.5)"},
		{"urn:ogc:def:crs:EPSG::4326", "POINT(13.4 52.5)", "POINT(13.4 52.5)"},
		{"EPSG:4326", "POINT(13.4 52.5)", "POINT(13.4 52.5)"},
		{"<http://www.opengis.net/def/crs/OGC/1.3/CRS84>", "POINT(13.4 52.5)", "POINT(13.4 52.5)"},
	} {
		key := fmt.Sprintf("axis-%d", i)
		s.do("POST", "/v1/events", map[string]string{"Content-Type": "text/plain", "Content-Crs": c.crs, "Idempotency-Key": key}, []byte(c.wkt))
		if s.settle(key)["state"] != "processed" {
			t.Errorf("%v: not processed", c)
			continue
		}
		if n := s.count("select count(*) from features where work_key = $1 and ST_AsText(geom) = $2", key, c.want); n != 1 {
			t.Errorf("%v: not there", c)
		}
	}
}

func TestWhatRunsPastTheAntimeridianIsCutThere(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("over", `{"type":"Polygon","coordinates":[[[179,-1],[181,-1],[181,1],[179,1],[179,-1]]]}`)
	if got := s.settle("over"); got["state"] != "processed" {
		t.Fatalf("%v", got)
	}
	if n := s.count("select count(*) from features where ST_XMin(geom) = -180 and ST_XMax(geom) = 180 and abs(ST_Area(geom) - 4) < 1e-9 and ST_IsValid(geom)"); n != 1 {
		t.Error("not cut into two halves")
	}
}

func TestLogsHoldNoCoordinatesAndNoPayloads(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("secret", `{"type":"Feature","properties":{"name":"s3cr3t"},"geometry":{"type":"Point","coordinates":[13.98765,95.43219]}}`)
	s.settle("secret")
	s.post("secret2", strings.ReplaceAll(bowtie, "[12,50]", "[12.98765,50.43219]"))
	s.settle("secret2")
	s.do("POST", "/v1/dead-letters", nil, []byte(`{"work_key":"g","task":"t","error":"at 95.43219","geometry":{"type":"Point","coordinates":[13.98765,52]},"labels":5}`))
	s.get("/v1/dead-letters?bbox=13.98765,0,1,95.43219")
	time.Sleep(50 * time.Millisecond)
	for _, secret := range []string{"98765", "43219", "s3cr3t"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %s:\n%s", secret, s.log)
		}
	}
	if !strings.Contains(s.log.String(), "try failed") {
		t.Error("the log says nothing of the failure, so this test proves nothing")
	}
}

// A large batch is committed in parts: indexes and keys go on over them.
func TestTheRecordsOfALargeBatchAreNumberedThrough(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	const n = 4100
	batch := func(other ...int) []byte {
		var b bytes.Buffer
		for i := range n {
			text := strconv.Itoa(i)
			if slices.Contains(other, i) {
				text = "-1"
			}
			fmt.Fprintf(&b, "{\"type\":\"Feature\",\"properties\":{\"i\":%s},\"geometry\":null}\n", text)
		}
		return b.Bytes()
	}
	header := map[string]string{"Content-Type": "application/x-ndjson", "Idempotency-Key": "large"}
	first := s.do("POST", "/v1/events", header, batch()).json(t)
	events := first["events"].([]any)
	if first["accepted"] != float64(n) || len(events) != n {
		t.Fatalf("%v accepted, %d events", first["accepted"], len(events))
	}
	for _, i := range []int{0, 1999, 2000, 3999, 4000, n - 1} {
		if e := events[i].(map[string]any); e["index"] != float64(i) || e["work_key"] != fmt.Sprintf("large#%d", i) {
			t.Errorf("%d: %v", i, e)
		}
	}
	again := s.do("POST", "/v1/events", header, batch(1, 2000, 4099)).json(t)
	var rejected []any
	for _, r := range again["rejected"].([]any) {
		rejected = append(rejected, r.(map[string]any)["index"])
	}
	if again["accepted"] != float64(n-3) || !slices.Equal(rejected, []any{1.0, 2000.0, 4099.0}) {
		t.Errorf("again: %v accepted, rejected %v", again["accepted"], rejected)
	}
	if got := s.count("select count(*) from events"); got != n {
		t.Errorf("%d events", got)
	}
}

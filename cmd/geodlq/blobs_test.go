package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"geodlq/internal/payload"
	"geodlq/internal/store"
)

// smallRows makes any body but the smallest go to the bucket. The sink may take its time
// on a busy machine.
var smallRows = map[string]string{"GEODLQ_INLINE_MAX": "100", "GEODLQ_SINK_TIMEOUT": "20s"}

// padded is a GeoJSON object with so much white space behind it that it is large.
func padded(body string, bytes int) string { return body + strings.Repeat(" ", bytes) }

func (s *server) payload(id any) answer {
	s.t.Helper()
	return s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", id))
}

func (s *server) letterPage(id any) string {
	s.t.Helper()
	a := s.do("GET", fmt.Sprintf("/letters/%.0f", id), map[string]string{"Accept": "text/html"}, nil)
	if a.status != 200 {
		s.t.Fatalf("page of letter %v: %d", id, a.status)
	}
	return string(a.body)
}

// blobFiles are the files of the server's bucket.
func (s *server) blobFiles() []string {
	s.t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(s.env["GEODLQ_DATA"], "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

// store is a store over the server's database and bucket.
func (s *server) store() *store.Store {
	s.t.Helper()
	bucket, err := payload.Open(s.t.Context(), s.env["GEODLQ_BLOB_URL"], filepath.Join(s.env["GEODLQ_DATA"], "blobs"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = bucket.Close() })
	return store.New(s.db, bucket, store.Rules{InlineMax: 100})
}

// fakeS3 is an S3 over HTTP with an empty bucket: its settings, and how to look in.
func fakeS3(t *testing.T) (map[string]string, *s3mem.Backend) {
	backend := s3mem.New()
	if err := backend.CreateBucket("letters"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return map[string]string{
		"GEODLQ_BLOB_URL": "s3://letters?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL),
	}, backend
}

func s3Keys(t *testing.T, backend *s3mem.Backend) []string {
	t.Helper()
	list, err := backend.ListBucket("letters", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range list.Contents {
		keys = append(keys, o.Key)
	}
	return keys
}

func TestLargeBodiesLieInTheBucketUntilTheirEventEndsWell(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	good, bad := padded(berlin, 200), padded(bowtie, 200)
	s.post("good", good)
	s.post("bad", bad)
	if got := s.settle("good"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	id := s.settle("bad")["letter_id"]
	if a := s.payload(id); string(a.body) != bad || a.header.Get("Content-Type") != "application/geo+json" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if n := s.count("select count(*) from events where body is null and blob is not null"); n != 1 {
		t.Errorf("%d events refer to a blob, want the dead one", n)
	}
	s.eventually("the blob of the processed event to go", func() bool { return len(s.blobFiles()) == 1 })
	if page := s.letterPage(id); !strings.Contains(page, "&#34;Polygon&#34;") || !strings.Contains(page, "&#34;sent&#34;:") {
		t.Error("the page shows neither the payload nor its coordinates")
	}
	// A duplicate and a conflict leave nothing behind.
	if a := s.post("bad", bad); a.json(t)["duplicate"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.post("bad", padded(berlin, 300)); a.status != 409 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if files := s.blobFiles(); len(files) != 1 {
		t.Errorf("%v", files)
	}
}

func TestAReplayedLetterKeepsItsLargePayload(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	body := padded(berlin, 200)
	s.exec("alter table features rename to features_away")
	s.post("k", body)
	id := s.settle("k")["letter_id"]
	s.exec("alter table features_away rename to features")
	s.act(id, "redrive")
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	if a := s.payload(id); string(a.body) != body {
		t.Errorf("%d %q", a.status, a.body)
	}
	// Reopened, it can be redriven from the same bytes.
	if a := s.act(id, "release"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.act(id, "redrive")
	s.eventually("the letter to be replayed again", func() bool { return s.statusOf(id) == "replayed" })
}

func TestFeaturesOfALargeCollectionAreRangesOfItsBlob(t *testing.T) {
	for _, kind := range []string{"files", "S3"} {
		t.Run(kind, func(t *testing.T) {
			env := maps.Clone(smallRows)
			if kind == "S3" {
				more, _ := fakeS3(t)
				maps.Copy(env, more)
			}
			s := startServer(t, env)
			body := `{"type":"FeatureCollection","features":[` + berlin + `, ` + bowtie + `,` + berlin + `]}`
			s.post("fc", body)
			s.settle("fc")
			id := s.settle("fc#1")["letter_id"]
			if a := s.payload(id); string(a.body) != bowtie {
				t.Errorf("%d %q", a.status, a.body)
			}
			if n := s.count("select count(*) from events where blob is not null"); n != 1 {
				t.Errorf("%d events refer to a blob, want the collection alone", n)
			}
			if n := s.count("select count(*) from features"); n != 2 {
				t.Errorf("%d features", n)
			}
			// Encoded, a large feature has a blob of its own.
			var zipped bytes.Buffer
			zw := gzip.NewWriter(&zipped)
			_, _ = zw.Write([]byte(body))
			_ = zw.Close()
			s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json", "Content-Encoding": "gzip", "Idempotency-Key": "zip"}, zipped.Bytes())
			s.settle("zip")
			if a := s.payload(s.settle("zip#1")["letter_id"]); string(a.body) != bowtie {
				t.Errorf("%d %q", a.status, a.body)
			}
			if n := s.count("select count(*) from events where work_key = 'zip#1' and blob is not null"); n != 1 {
				t.Error("the encoded feature has no blob")
			}
		})
	}
}

func TestTheBlobOfACollectionGoesOnceAllItsFeaturesAreProcessed(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	s.post("fc", `{"type":"FeatureCollection","features":[`+berlin+`,`+berlin+`]}`)
	s.settle("fc")
	if _, err := s.store().ReleaseBodies(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.count("select count(*) from events where blob is not null"); n != 0 || len(s.blobFiles()) != 0 {
		t.Errorf("%d events refer to a blob; %v", n, s.blobFiles())
	}
}

func TestPayloadsOfReportsGoToTheBucketAndOlderOnesAreReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	large := func(n int) string { return fmt.Sprintf(`{"n": %d,  "x":"%s", "x":1}`, n, strings.Repeat("y", 200)) }
	post := func(key, payload string) answer {
		return s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json", "Idempotency-Key": key},
			[]byte(`{"work_key":"w","task":"t","error":"e","payload":`+payload+`}`))
	}
	id := post("1", large(1)).json(t)["letter_id"]
	if a := s.payload(id); string(a.body) != large(1) {
		t.Errorf("%d %q", a.status, a.body)
	}
	first := s.blobFiles()
	if a := post("1", large(1)); a.json(t)["duplicate"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	if again := s.blobFiles(); len(first) != 1 || len(again) != 1 || first[0] != again[0] {
		t.Errorf("after a duplicate %v, before %v", again, first)
	}
	post("2", large(2))
	if a := s.payload(id); string(a.body) != large(2) {
		t.Errorf("%d %q", a.status, a.body)
	}
	if now := s.blobFiles(); len(now) != 1 || now[0] == first[0] {
		t.Errorf("%v", now)
	}
	if p := properties(s.letter(id)); p["size"] != float64(len(large(2))) || p["attempts"] != 2.0 {
		t.Errorf("%v", p)
	}
	post("3", `{"small":1}`)
	if a := s.payload(id); string(a.body) != `{"small":1}` || len(s.blobFiles()) != 0 {
		t.Errorf("%d %q; %v", a.status, a.body, s.blobFiles())
	}
	// On the letter of an event it changes nothing.
	s.post("bad", padded(bowtie, 200))
	event := s.settle("bad")["letter_id"]
	s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json"}, []byte(`{"work_key":"bad","task":"t","error":"e","payload":`+large(3)+`}`))
	if a := s.payload(event); string(a.body) != padded(bowtie, 200) || len(s.blobFiles()) != 1 {
		t.Errorf("%d %q; %v", a.status, a.body, s.blobFiles())
	}
}

func TestAMissingBlobIsSaidOnItsLetterAndNeverProcessed(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	s.stop()
	dbURL := s.env["DATABASE_URL"]
	s = startCommand(t, "web", dbURL, smallRows)
	s.post("k", padded(berlin, 200))
	for _, file := range s.blobFiles() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	s = startCommand(t, "serve", dbURL, smallRows)
	id := s.settle("k")["letter_id"]
	p := properties(s.letter(id))
	if p["stage"] != "envelope" || p["class"] != "unknown" || p["error"] != payload.ErrMissing.Error() || p["tries"] != 1.0 || p["context_lost"] != false {
		t.Errorf("%v", p)
	}
	if a := s.payload(id); a.status != 410 || !strings.Contains(string(a.body), "missing") || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if page := s.letterPage(id); !strings.Contains(page, "missing from the bucket") || strings.Contains(page, ">download<") {
		t.Error("the page does not say that the payload is missing, or offers it")
	}
	s.act(id, "redrive")
	s.eventually("the redrive to fail", func() bool { return properties(s.letter(id))["redrives"] == 1.0 })
	if p := properties(s.letter(id)); p["error"] != payload.ErrMissing.Error() || p["status"] != "pending" {
		t.Errorf("%v", p)
	}
	if n := s.count("select count(*) from features"); n != 0 || s.count("select count(*) from dead_letters") != 1 {
		t.Error("it was processed, or made more than one letter")
	}
}

func TestABlobThatWasTamperedWithIsNeitherShownNorReplayed(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	s.exec("alter table features rename to features_away")
	s.post("k", padded(berlin, 200))
	id := s.settle("k")["letter_id"]
	s.exec("alter table features_away rename to features")
	for _, file := range s.blobFiles() {
		if err := os.WriteFile(file, []byte(padded(strings.Replace(berlin, "13.4", "14.4", 1), 200)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a := s.payload(id); a.status != 500 || !strings.Contains(string(a.body), "SHA-256") || strings.Contains(string(a.body), "14.4") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if page := s.letterPage(id); !strings.Contains(page, "no longer match") || strings.Contains(page, "14.4") {
		t.Error("the page shows the changed bytes, or does not say that they changed")
	}
	s.act(id, "redrive")
	s.eventually("the redrive to fail", func() bool { return properties(s.letter(id))["redrives"] == 1.0 })
	if p := properties(s.letter(id)); p["stage"] != "envelope" || !strings.Contains(p["error"].(string), "SHA-256") {
		t.Errorf("%v", p)
	}
	if n := s.count("select count(*) from features"); n != 0 {
		t.Error("it was replayed")
	}
}

func TestWhileTheBucketIsAwayEventsWaitAndMakeNoLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRows)
	s.exec("alter table features rename to features_away")
	s.post("dead", padded(berlin, 200))
	id := s.settle("dead")["letter_id"]
	s.stop()
	dbURL := s.env["DATABASE_URL"]
	s = startCommand(t, "web", dbURL, smallRows)
	s.post("k", padded(berlin, 300))
	s.exec("alter table features_away rename to features")
	s = startCommand(t, "serve", dbURL, smallRows) // the bucket is there at the start
	blobs := filepath.Join(s.env["GEODLQ_DATA"], "blobs")
	s.settle("k")
	if err := os.Rename(blobs, blobs+"-away"); err != nil {
		t.Fatal(err)
	}
	if a := s.payload(id); a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), "bucket") {
		t.Errorf("payload: %d %s", a.status, a.body)
	}
	// What is large is spooled meanwhile.
	for what, a := range map[string]answer{
		"event":  s.post("new", padded(berlin, 400)),
		"report": s.report(map[string]any{"payload": strings.Repeat("x", 300)}, ""),
	} {
		if a.status != 202 || a.json(t)["spooled"] != true {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	if a := s.post("small", `{"type":"Point","coordinates":[1,2]}`); a.status != 202 {
		t.Errorf("a small event: %d %s", a.status, a.body)
	}
	if page := s.letterPage(id); !strings.Contains(page, "can’t be reached") {
		t.Error("the page does not say that the bucket is away")
	}
	s.act(id, "redrive")
	s.eventually("the redrive to wait", func() bool {
		return s.count("select count(*) from river_job j join events e on e.job_id = j.id where e.work_key = 'dead' and j.state in ('scheduled', 'available') and (j.metadata->>'snoozes')::int > 0") == 1
	})
	if err := os.Rename(blobs+"-away", blobs); err != nil {
		t.Fatal(err)
	}
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	if p := properties(s.letter(id)); p["attempts"] != 1.0 || p["redrives"] != 0.0 {
		t.Errorf("%v", p)
	}
	s.eventually("what was spooled to be loaded", func() bool { return s.count("select count(*) from dead_letters where kind = 'geotask'") == 1 })
	if got := s.settle("new"); got["state"] != "processed" {
		t.Errorf("%v", got)
	}
	if n := s.count("select count(*) from dead_letters"); n != 2 { // and the report's
		t.Errorf("%d letters", n)
	}
}

func TestOrphansAreCollectedOnceTheyAreOldAndNothingElse(t *testing.T) {
	for _, kind := range []string{"files", "S3"} {
		t.Run(kind, func(t *testing.T) {
			env := maps.Clone(smallRows)
			count := func(s *server) int { return len(s.blobFiles()) }
			if kind == "S3" {
				more, backend := fakeS3(t)
				maps.Copy(env, more)
				count = func(*server) int { return len(s3Keys(t, backend)) }
			}
			s := startServer(t, env)
			s.post("kept", padded(bowtie, 200))
			s.post("orphan", padded(bowtie, 300))
			kept, orphan := s.settle("kept")["letter_id"], s.settle("orphan")["letter_id"]
			large := strings.Repeat("x", 300)
			report := s.report(map[string]any{"payload": large}, "").json(t)["letter_id"]
			s.exec("update events set blob = null where work_key = 'orphan'")
			collect := func(age time.Duration) int {
				n, _, err := s.store().Collect(t.Context(), age, payload.Cursor{})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if n := collect(time.Hour); n != 0 || count(s) != 3 {
				t.Errorf("%d of an hour ago collected, %d left", n, count(s))
			}
			if n := collect(-time.Minute); n != 1 || count(s) != 2 {
				t.Errorf("%d collected, %d left", n, count(s))
			}
			if a := s.payload(kept); string(a.body) != padded(bowtie, 200) {
				t.Errorf("%d %s", a.status, a.body)
			}
			if a := s.payload(report); string(a.body) != `"`+large+`"` {
				t.Errorf("%d %s", a.status, a.body)
			}
			if a := s.payload(orphan); a.status != 404 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

func TestABlobThatIsMissingInS3IsA410(t *testing.T) {
	env, backend := fakeS3(t)
	maps.Copy(env, smallRows)
	s := startServer(t, env)
	body := padded(bowtie, 100_000)
	s.post("k", body)
	id := s.settle("k")["letter_id"]
	if a := s.payload(id); string(a.body) != body {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
	for _, key := range s3Keys(t, backend) {
		if _, err := backend.DeleteObject("letters", key); err != nil {
			t.Fatal(err)
		}
	}
	if a := s.payload(id); a.status != 410 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestEveryPayloadComesBackByteForByteWithItsTypeAndHeaders(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	bodies := map[string]string{
		"empty":          "",
		"one NUL":        "\x00",
		"every byte":     string(every),
		"not UTF-8":      `{"type":"Feature","properties":{"name":"K` + "\xf6" + `ln"},"geometry":null}`,
		"BOM":            "\xef\xbb\xbf" + berlin,
		"UTF-16 and BOM": "\xff\xfe{\x00}\x00",
		"duplicate keys": `{"type":"Feature","properties":{"a":1,"a":2, "a":3},"geometry":{"type":"Point","coordinates":[1,2]},"type":"Feature"}`,
		"long numbers":   `{"type":"Feature","properties":{"n":9007199254740993,"x":0.12345678901234567,"z":1.0,"e":1E+2,"m":-0},"geometry":{"type":"Point","coordinates":[13.404954123456789,52.520006512345678]}}`,
		"escaped NUL":    `{"type":"Feature","properties":{"s":"a\u0000b\ud800"},"geometry":{"type":"Point","coordinates":[1,2]}}`,
		"line ends":      "\r\n" + berlin + "\r\n\n\t ",
		"not JSON":       "POINT (1 2",
	}
	for place, inlineMax := range map[string]string{"row": "64KiB", "bucket": "0"} {
		s := startServer(t, map[string]string{"GEODLQ_INLINE_MAX": inlineMax})
		for name, body := range bodies {
			const mediaType = `application/geo+json; charset="utf-8"; x=Y`
			s.do("POST", "/v1/events", map[string]string{
				"Content-Type": mediaType, "Content-Crs": "EPSG:9999", "Idempotency-Key": name, "Geodlq-Source": "src", "Geodlq-Task": "task",
				"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			}, []byte(body))
			id := s.settle("src:" + name)["letter_id"]
			if id == nil {
				t.Errorf("%s: no letter", name)
				continue
			}
			a := s.payload(id)
			if a.status != 200 || string(a.body) != body {
				t.Errorf("%s in the %s: %d %q", name, place, a.status, a.body)
			}
			for header, want := range map[string]string{
				"Content-Type": mediaType, "Geodlq-Sent-Content-Crs": "EPSG:9999", "Geodlq-Sent-Geodlq-Source": "src", "Geodlq-Sent-Geodlq-Task": "task",
				"Geodlq-Sent-Idempotency-Key": name, "Geodlq-Sent-Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"Content-Length": fmt.Sprint(len(body)), "Geodlq-Sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(body))),
			} {
				if got := a.header.Get(header); got != want {
					t.Errorf("%s in the %s: %s is %q, want %q", name, place, header, got, want)
				}
			}
		}
		inBucket := len(bodies) - 1 // an empty body needs no room
		if inlineMax != "0" {
			inBucket = 0
		}
		if n := s.count("select count(*) from events where blob is not null"); n != inBucket || s.count("select count(*) from events where body is not null") != len(bodies)-inBucket {
			t.Errorf("%s: %d of %d lie in the bucket", place, n, len(bodies))
		}
	}
}

func TestPayloadsOfReportsComeBackAsTheyStoodInTheReport(t *testing.T) {
	t.Parallel()
	for place, inlineMax := range map[string]string{"row": "64KiB", "bucket": "0"} {
		s := startServer(t, map[string]string{"GEODLQ_INLINE_MAX": inlineMax})
		for i, sent := range []string{
			`{"a":1,"a":2,  "a":3}`, `[9007199254740993, 0.12345678901234567, 1.0, 1E+2, -0]`, `"a\u0000b\ud800"`, "{\r\n\t\"k\" : \"ü\"\n}", `7`, `""`,
		} {
			a := s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json"},
				fmt.Appendf(nil, "\xef\xbb\xbf{\"work_key\":\"w%d\",\"task\":\"t\",\"error\":\"e\",\"payload\": %s }", i, sent))
			if a.status != 201 {
				t.Fatalf("%q: %d %s", sent, a.status, a.body)
			}
			if got := s.payload(a.json(t)["letter_id"]); string(got.body) != sent || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%q in the %s came back as %q, %s", sent, place, got.body, got.header.Get("Content-Type"))
			}
		}
	}
}

func TestPagesShowNumbersAsTheyWereSent(t *testing.T) {
	t.Parallel()
	numbers := []string{"9007199254740993", "0.123456789012345", "13.404954123456789", "1.000", "1E+2", "-0", "123456789012345678901234567890"}
	object := `{"n":[` + strings.Join(numbers, ",") + `]}`
	for _, inlineMax := range []string{"64KiB", "10"} {
		s := startServer(t, map[string]string{"GEODLQ_INLINE_MAX": inlineMax})
		s.post("k", strings.Replace(bowtie, `"properties":{}`, `"properties":`+object, 1))
		pages := []string{s.letterPage(s.settle("k")["letter_id"])}
		report := s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json"},
			[]byte(`{"work_key":"w","task":"t","error":"e","payload":`+object+`}`))
		pages = append(pages, s.letterPage(report.json(t)["letter_id"]))
		for i, page := range pages {
			for _, number := range numbers {
				if !strings.Contains(page, `<span class="json-number">`+number+`</span>`) {
					t.Errorf("page %d, %s inline: %s does not stand there", i, inlineMax, number)
				}
			}
		}
	}
	// What is kept as JSONB keeps its digits, not how they were written.
	s := startServer(t, nil)
	exact := []string{"9007199254740993", "0.123456789012345", "1.000"}
	report := s.do("POST", "/v1/dead-letters", map[string]string{"Content-Type": "application/json"}, fmt.Appendf(nil,
		`{"work_key":"w","task":"t","error":"e","params":{"a":%[1]s,"b":%[2]s,"c":%[3]s},"labels":{"a":{"x":[%[1]s,%[2]s,%[3]s]}}}`, exact[0], exact[1], exact[2]))
	id := report.json(t)["letter_id"]
	answer := s.get(fmt.Sprintf("/v1/dead-letters/%.0f", id))
	for _, number := range exact {
		if n := strings.Count(s.letterPage(id), number); n != 2 {
			t.Errorf("%s stands %d times on the page", number, n)
		}
		if n := strings.Count(string(answer.body), number); n != 2 {
			t.Errorf("%s stands %d times in the letter", number, n)
		}
	}
}

func TestALetterWhoseGeometryWasSimplifiedIsReplayedFromItsBytes(t *testing.T) {
	t.Parallel()
	for _, inlineMax := range []string{"64KiB", "8MiB"} {
		s := startServer(t, map[string]string{"GEODLQ_INLINE_MAX": inlineMax, "GEODLQ_SINK_TIMEOUT": "20s"})
		s.exec("alter table features rename to features_away")
		star := &generator{Kind: "star_polygon", Vertices: 20_000, Center: [2]float64{10, 50}, RInner: 0.8, ROuter: 1}
		s.post("star", string(star.body(t)))
		id := s.settle("star")["letter_id"]
		if p := properties(s.letter(id)); p["geom_simplified"] != true || p["stage"] != "downstream" {
			t.Fatalf("%v", p)
		}
		s.exec("alter table features_away rename to features")
		s.act(id, "redrive")
		s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
		if n := s.count("select ST_NPoints(geom) from features where work_key = 'star'"); n != 20_001 {
			t.Errorf("the feature has %d points", n)
		}
	}
}

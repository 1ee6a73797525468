package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// testSink answers as answer says, and notes what it took.
type testSink struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	bodies []string
	answer atomic.Pointer[http.HandlerFunc]
}

func newTestSink(t *testing.T) *testSink {
	s := &testSink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if answer := s.answer.Load(); answer != nil {
			(*answer)(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *testSink) answers(f http.HandlerFunc) { s.answer.Store(&f) }

func (s *testSink) status(code int) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

func (s *testSink) taken() (keys, bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...), append([]string(nil), s.bodies...)
}

func (s *server) act(id any, action string) answer {
	s.t.Helper()
	return s.do("POST", fmt.Sprintf("/v1/dead-letters/%.0f/%s", id, action), nil, []byte(`{"reason":"test"}`))
}

func (s *server) statusOf(id any) string {
	s.t.Helper()
	return properties(s.letter(id))["status"].(string)
}

func TestAnEventWhoseSinkIsDownIsRetriedDiesOnceAndIsReplayedByOneClick(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.exec("alter table features rename to features_away")
	s.post("down", berlin)
	event := s.settle("down")
	if event["state"] != "dead" || event["tries"] != 3.0 || event["attempts"] != 1.0 {
		t.Fatalf("%v", event)
	}
	p := properties(s.letter(event["letter_id"]))
	if p["stage"] != "downstream" || p["class"] != "upstream_error" || p["tries"] != 3.0 || p["located_by"] != "geometry" {
		t.Errorf("%v", p)
	}
	s.exec("alter table features_away rename to features")
	page := s.do("POST", fmt.Sprintf("/letters/%.0f/redrive", event["letter_id"]), map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, []byte("reason="))
	if page.status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.status, page.body)
	}
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(event["letter_id"]) == "replayed" })
	if n := s.count("select count(*) from features where work_key = 'down'"); n != 1 {
		t.Errorf("features holds it %d times", n)
	}
	if n := s.count("select count(*) from dead_letters"); n != 1 {
		t.Errorf("%d letters", n)
	}
	history := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/history", event["letter_id"])).json(t)["history"].([]any)
	var actions []string
	for _, h := range history {
		actions = append(actions, h.(map[string]any)["action"].(string))
	}
	if fmt.Sprint(actions) != "[dead_lettered redrive replayed]" {
		t.Errorf("history %v", actions)
	}
	if got := s.get(fmt.Sprintf("/v1/dead-letters/%.0f/payload", event["letter_id"])); string(got.body) != berlin {
		t.Errorf("the payload of a replayed letter is %q", got.body)
	}
}

func TestASinkThatFailsAtTheCapQuarantinesAndReleaseBeginsAnew(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	sink.status(503)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_REDRIVE_CAP": "2"})
	s.post("cap", berlin)
	id := s.settle("cap")["letter_id"]
	if keys, _ := sink.taken(); len(keys) != 3 {
		t.Errorf("the sink was asked %d times, want 3", len(keys))
	}
	for redrives := 1.0; redrives <= 2; redrives++ {
		if a := s.act(id, "redrive"); a.status != 200 || properties(a.json(t))["status"] != "redriving" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		s.eventually("the redrive to fail", func() bool { return properties(s.letter(id))["redrives"] == redrives })
	}
	p := properties(s.letter(id))
	if p["status"] != "quarantined" || p["attempts"] != 3.0 || p["reason"] == "" || p["not_before"] == nil {
		t.Errorf("%v", p)
	}
	if keys, _ := sink.taken(); len(keys) != 5 {
		t.Errorf("the sink was asked %d times, want 5: the first failure of a redrive is final", len(keys))
	}
	if a := s.act(id, "redrive"); a.status != 409 {
		t.Errorf("redrive of a quarantined letter: %d %s", a.status, a.body)
	}
	if a := s.act(id, "release"); a.status != 200 || properties(a.json(t))["status"] != "pending" || properties(a.json(t))["redrives"] != 0.0 {
		t.Errorf("release: %d %s", a.status, a.body)
	}
	sink.status(204)
	s.act(id, "redrive")
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	// Reopened by hand it can go once more, at the same key.
	if a := s.act(id, "release"); a.status != 200 {
		t.Fatalf("reopen: %d %s", a.status, a.body)
	}
	s.act(id, "redrive")
	s.eventually("the letter to be replayed again", func() bool { return s.statusOf(id) == "replayed" })
}

func TestTwentyClicksOnOneLetterMakeOneJob(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	sink.status(400)
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.post("clicks", berlin)
	id := s.settle("clicks")["letter_id"]
	sink.answers(func(w http.ResponseWriter, r *http.Request) { time.Sleep(200 * time.Millisecond) })
	var won, lost atomic.Int32
	var clicks sync.WaitGroup
	for range 20 {
		clicks.Go(func() {
			switch a := s.act(id, "redrive"); a.status {
			case 200:
				won.Add(1)
			case 409:
				lost.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	clicks.Wait()
	if won.Load() != 1 || lost.Load() != 19 {
		t.Errorf("%d clicks won, %d were told who was first", won.Load(), lost.Load())
	}
	s.eventually("the letter to be replayed", func() bool { return s.statusOf(id) == "replayed" })
	if n := s.count("select count(*) from river_job where kind = 'process_event'"); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestTheSinksAnswersDecideWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		asked   int
		class   string
		unknown bool
		status  any
	}{
		{"400 is final", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, 1, "upstream_error", false, 400.0},
		{"a redirect is not followed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(302)
		}, 1, "upstream_error", false, 302.0},
		{"429 is tried again", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 3, "upstream_error", false, 429.0},
		{"500 is tried again", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 3, "upstream_error", false, 500.0},
		{"504 is a timeout", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(504) }, 3, "upstream_timeout", false, 504.0},
		{"no answer is a timeout of unknown outcome", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 3, "upstream_timeout", true, nil},
		{"a cut connection is of unknown outcome", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, 3, "upstream_error", true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sink := newTestSink(t)
			sink.answers(c.answer)
			s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
			s.post("k", berlin)
			p := properties(s.letter(s.settle("k")["letter_id"]))
			keys, _ := sink.taken()
			if len(keys) != c.asked || p["class"] != c.class || p["outcome_unknown"] != c.unknown || p["http_status"] != c.status {
				t.Errorf("asked %d times: %v", len(keys), p)
			}
		})
	}
}

func TestASinkThatIsNotThereIsTriedAgainAndNothingIsUnknown(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": "http://127.0.0.1:1/"})
	s.post("k", berlin)
	p := properties(s.letter(s.settle("k")["letter_id"]))
	if p["tries"] != 3.0 || p["class"] != "upstream_error" || p["outcome_unknown"] != false {
		t.Errorf("%v", p)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	sink := newTestSink(t)
	var first, second time.Time
	sink.answers(func(w http.ResponseWriter, _ *http.Request) {
		if first.IsZero() {
			first = time.Now()
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(429)
			return
		}
		second = time.Now()
	})
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL})
	s.post("k", berlin)
	if got := s.settle("k"); got["state"] != "processed" || got["tries"] != 2.0 {
		t.Errorf("%v", got)
	}
	if wait := second.Sub(first); wait < 2*time.Second || wait > 10*time.Second {
		t.Errorf("tried again after %s", wait)
	}
}

func TestThePostedFeatureIsNormalisedSignedAndItsPropertiesAreAsSent(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	sink := newTestSink(t)
	var verified error = fmt.Errorf("nothing came")
	sink.answers(func(_ http.ResponseWriter, r *http.Request) {
		_, bodies := sink.taken()
		verified = verifier.Verify([]byte(bodies[0]), r.Header)
	})
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": sink.URL, "GEODLQ_SINK_SECRET": secret})
	s.do("POST", "/v1/events", map[string]string{"Content-Type": "application/geo+json", "Content-Crs": "EPSG:3857", "Idempotency-Key": "p", "Geodlq-Source": "fleet"},
		[]byte(`{"type":"Feature","id":9007199254740993,"properties":{"n":1.234567890123456789,"s":"\ud800"},"geometry":{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[0,0]}]}}`))
	if got := s.settle("fleet:p"); got["state"] != "processed" {
		t.Fatalf("%v", got)
	}
	if verified != nil {
		t.Errorf("the signature: %v", verified)
	}
	keys, bodies := sink.taken()
	want := `{"type":"Feature","id":9007199254740993,"geometry":{"geometries":[{"coordinates":[0,0],"type":"Point"}],"type":"GeometryCollection"},"properties":{"n":1.234567890123456789,"s":"\ud800"}}`
	if len(keys) != 1 || keys[0] != "fleet:p" || bodies[0] != want {
		t.Errorf("posted under %v:\n%s\nwant\n%s", keys, bodies[0], want)
	}
}

func TestAnUnknownEPSGEndsQuarantinedAfterExactlyTheCap(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.do("POST", "/v1/events", map[string]string{"Content-Type": "text/plain", "Content-Crs": "EPSG:9999", "Idempotency-Key": "k"}, []byte("POINT(13.4 52.5)"))
	id := s.settle("k")["letter_id"]
	for redrives := 1.0; redrives <= 5; redrives++ {
		if got := s.statusOf(id); got != "pending" {
			t.Fatalf("%s after %v redrives", got, redrives-1)
		}
		s.act(id, "redrive")
		s.eventually("the redrive to fail", func() bool { return properties(s.letter(id))["redrives"] == redrives })
	}
	if p := properties(s.letter(id)); p["status"] != "quarantined" || p["attempts"] != 6.0 || p["src_crs"] != "EPSG:9999" {
		t.Errorf("%v", p)
	}
}

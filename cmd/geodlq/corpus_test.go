package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// corpusCase is one way in which spatial events break, re-created from a public
// bug report. See testdata/corpus.jsonl.
type corpusCase struct {
	ID          string            `json:"id"`
	MediaType   string            `json:"media_type"`
	Headers     map[string]string `json:"headers"`
	Payload     *string           `json:"payload"`
	PayloadB64  string            `json:"payload_b64"`
	Generator   *generator        `json:"generator"`
	DeclaredCRS *string           `json:"declared_crs"`
	Inject      map[string]string `json:"inject"`
	ExpectAny   []expectation     `json:"expect_any"`
}

type expectation struct {
	Outcome        string         `json:"outcome"`
	Stage          string         `json:"stage"`
	Class          string         `json:"class"`
	GeometryStored bool           `json:"geometry_stored"`
	Processed      int            `json:"processed"`
	Dead           []expectedDead `json:"dead"`
}

type expectedDead struct {
	Stage          string `json:"stage"`
	Class          string `json:"class"`
	GeometryStored bool   `json:"geometry_stored"`
}

type generator struct {
	Kind     string     `json:"kind"`
	Depth    int        `json:"depth"`
	Leaf     string     `json:"leaf"`
	Template string     `json:"template"`
	Bytes    int        `json:"bytes"`
	Size     int        `json:"size"`
	Vertices int        `json:"vertices"`
	Center   [2]float64 `json:"center"`
	RInner   float64    `json:"r_inner"`
	ROuter   float64    `json:"r_outer"`
	Swap     []int      `json:"swap"`
}

func (c *corpusCase) body(t *testing.T) []byte {
	switch {
	case c.Payload != nil:
		return []byte(*c.Payload)
	case c.Generator != nil:
		return c.Generator.body(t)
	}
	body, err := base64.StdEncoding.DecodeString(c.PayloadB64)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (g *generator) body(t *testing.T) []byte {
	feature := func(properties, geometry string) []byte {
		return []byte(`{"type":"Feature","properties":` + properties + `,"geometry":` + geometry + `}`)
	}
	switch g.Kind {
	case "pad_property":
		return []byte(strings.ReplaceAll(g.Template, "%PAD%", strings.Repeat("x", max(g.Bytes, g.Size))))
	case "nested_array_property":
		return feature(`{"a":`+strings.Repeat("[", g.Depth)+strings.Repeat("]", g.Depth)+`}`, `{"type":"Point","coordinates":[13.4,52.5]}`)
	case "nested_gc":
		return feature(`{}`, strings.Repeat(`{"type":"GeometryCollection","geometries":[`, g.Depth)+g.Leaf+strings.Repeat(`]}`, g.Depth))
	case "wkb_nested_gc":
		var out []byte
		for i := range g.Depth {
			out = append(out, 1)
			out = binary.LittleEndian.AppendUint32(out, 7)
			out = binary.LittleEndian.AppendUint32(out, uint32(min(1, g.Depth-1-i)))
		}
		return out
	case "star_polygon":
		return feature(`{}`, `{"type":"Polygon","coordinates":[[`+strings.Join(g.ring(), ",")+`]]}`)
	}
	t.Fatalf("no generator %q", g.Kind)
	return nil
}

func (g *generator) ring() []string {
	ring := make([]string, g.Vertices)
	for i := range ring {
		r := g.ROuter
		if i%2 == 1 {
			r = g.RInner
		}
		angle := 2 * math.Pi * float64(i) / float64(g.Vertices)
		ring[i] = fmt.Sprintf("[%.7f,%.7f]", g.Center[0]+r*math.Cos(angle), g.Center[1]+r*math.Sin(angle))
	}
	if len(g.Swap) == 2 {
		ring[g.Swap[0]], ring[g.Swap[1]] = ring[g.Swap[1]], ring[g.Swap[0]]
	}
	return append(ring, ring[0])
}

// corpusSink answers as the case's key says.
func corpusSink(t *testing.T, cases map[string]*corpusCase) string {
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		id, _, _ := strings.Cut(r.Header.Get("Idempotency-Key"), "#")
		inject := cases[id].Inject
		switch inject["downstream"] {
		case "timeout":
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
		case "oom":
			http.Error(w, "out of memory: killed", http.StatusInternalServerError)
		case "http_500":
			http.Error(w, "{}", http.StatusInternalServerError)
		case "error":
			http.Error(w, inject["message"], http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(sink.Close)
	return sink.URL
}

func readCorpus(t *testing.T) []*corpusCase {
	file, err := os.Open("testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var cases []*corpusCase
	for lines := bufio.NewScanner(file); lines.Scan(); {
		c := &corpusCase{}
		if err := json.Unmarshal(lines.Bytes(), c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

func TestEveryCorpusCaseEndsAsItShould(t *testing.T) {
	t.Parallel()
	cases := readCorpus(t)
	byID := map[string]*corpusCase{}
	for _, c := range cases {
		byID[c.ID] = c
	}
	s := startServer(t, map[string]string{"GEODLQ_SINK_URL": corpusSink(t, byID)})
	for _, c := range cases {
		header := map[string]string{"Idempotency-Key": c.ID, "Content-Type": c.MediaType}
		for name, value := range c.Headers {
			header[name] = value
		}
		if c.DeclaredCRS != nil {
			header["Content-Crs"] = *c.DeclaredCRS
		}
		if a := s.do("POST", "/v1/events", header, c.body(t)); a.status != http.StatusAccepted {
			t.Errorf("%s: the door answered %d %s", c.ID, a.status, a.body)
		}
	}
	preferred := 0
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			got := s.outcome(c.ID)
			for i, want := range c.ExpectAny {
				if got == want.String() {
					if i == 0 {
						preferred++
					}
					return
				}
			}
			t.Errorf("ended as %s, want one of %v", got, c.ExpectAny)
		})
	}
	t.Logf("%d of %d cases ended as preferred", preferred, len(cases))
}

func (e expectation) String() string {
	switch e.Outcome {
	case "dead":
		return fmt.Sprintf("dead %s %s %v", e.Stage, e.Class, e.GeometryStored)
	case "split":
		return fmt.Sprintf("split %d %v", e.Processed, e.Dead)
	}
	return e.Outcome
}

// outcome tells how an event ended, in the words of an expectation. A collection
// all of whose features are processed is processed.
func (s *server) outcome(key string) string {
	event := s.settle(key)
	switch event["state"] {
	case "dead":
		p := s.letter(event["letter_id"])
		e := expectation{"dead", properties(p)["stage"].(string), properties(p)["class"].(string), p["geometry"] != nil, 0, nil}
		return e.String()
	case "split":
		e := expectation{Outcome: "split", Dead: []expectedDead{}}
		for _, child := range event["children"].([]any) {
			end := s.settle(child.(string))
			if end["state"] == "processed" {
				e.Processed++
				continue
			}
			p := s.letter(end["letter_id"])
			e.Dead = append(e.Dead, expectedDead{properties(p)["stage"].(string), properties(p)["class"].(string), p["geometry"] != nil})
		}
		if len(e.Dead) == 0 && e.Processed == 1 {
			return "processed"
		}
		return e.String()
	}
	return event["state"].(string)
}

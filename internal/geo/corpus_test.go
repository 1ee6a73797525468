package geo

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// corpusCase is one body that once broke somebody's software; see
// testdata/corpus.jsonl. Want is an outcome as outcome gives it.
type corpusCase struct {
	ID, Format, Payload, Want string
	PayloadB64                []byte `json:"payload_b64"`
	Generator                 *generator
}

// generator is the recipe of a body too large to write down.
type generator struct {
	Kind, Leaf      string
	Depth, Vertices int
	Center          [2]float64
	RInner          float64 `json:"r_inner"`
	ROuter          float64 `json:"r_outer"`
}

func (g generator) body(t testing.TB) []byte {
	switch g.Kind {
	case "nested_array_property":
		return fmt.Appendf(nil, `{"type":"Feature","properties":{"a":%s%s},"geometry":null}`,
			strings.Repeat("[", g.Depth), strings.Repeat("]", g.Depth))
	case "nested_gc":
		return nestedCollections(g.Depth, g.Leaf)
	case "wkb_nested_gc":
		return nestedWKB(g.Depth)
	case "star_polygon":
		return starPolygon(g.Vertices, g.Center, g.RInner, g.ROuter)
	}
	t.Fatalf("no generator %q", g.Kind)
	return nil
}

func nestedCollections(depth int, leaf string) []byte {
	return []byte(`{"type":"Feature","properties":{},"geometry":` +
		strings.Repeat(`{"type":"GeometryCollection","geometries":[`, depth) + leaf +
		strings.Repeat(`]}`, depth) + `}`)
}

func nestedWKB(depth int) []byte {
	var b []byte
	for i := range depth {
		b = append(b, 1)
		b = binary.LittleEndian.AppendUint32(b, wkbCollection)
		b = binary.LittleEndian.AppendUint32(b, uint32(min(1, depth-1-i)))
	}
	return b
}

func starPolygon(vertices int, center [2]float64, inner, outer float64) []byte {
	var b bytes.Buffer
	b.WriteString(`{"type":"Feature","properties":{},"geometry":{"type":"Polygon","coordinates":[[`)
	for i := range vertices + 1 {
		r := outer
		if i%vertices%2 == 1 {
			r = inner
		}
		a := 2 * math.Pi * float64(i%vertices) / float64(vertices)
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%.7f,%.7f]", center[0]+r*math.Cos(a), center[1]+r*math.Sin(a))
	}
	b.WriteString(`]]}}`)
	return b.Bytes()
}

// outcome says in one word what Parse made of a body.
func outcome(doc *Document, err error) string {
	var e *Error
	switch {
	case errors.As(err, &e):
		return string(e.Stage) + "/" + string(e.Class)
	case err != nil:
		return "an error of another type"
	case doc.Flaw != nil && doc.Geometry != nil:
		return "a flaw with a geometry"
	case doc.Flaw != nil:
		return string(doc.Flaw.Stage) + "/" + string(doc.Flaw.Class)
	case doc.Collection:
		return "collection"
	case doc.Empty:
		return "empty"
	case doc.Geometry == nil:
		return "null"
	}
	return "geometry"
}

func formatNamed(name string) Format {
	return map[string]Format{"geojson": GeoJSON, "wkt": WKT, "wkb": WKB}[name]
}

func readCorpus(t testing.TB) []corpusCase {
	f, err := os.Open("testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []corpusCase
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c corpusCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (c corpusCase) body(t testing.TB) []byte {
	switch {
	case c.Generator != nil:
		return c.Generator.body(t)
	case c.PayloadB64 != nil:
		return c.PayloadB64
	}
	return []byte(c.Payload)
}

func TestEachCaseOfTheCorpusHasItsPreferredOutcome(t *testing.T) {
	t.Parallel()
	cases := readCorpus(t)
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			doc, err := Parse(formatNamed(c.Format), c.body(t))
			if got := outcome(doc, err); got != c.Want {
				t.Errorf("got %s (%v), want %s", got, err, c.Want)
			}
		})
	}
}

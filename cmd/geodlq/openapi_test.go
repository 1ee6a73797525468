package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
)

const openAPIFile = "../../web/openapi.json"

// contract is web/openapi.json, with what was seen of it.
type contract struct {
	doc    *openapi3.T
	routes map[string]*routers.Route   // by operationId
	seen   map[string]map[int]struct{} // statuses by operationId
	kept   map[string]exchange         // by the names in its answer
}

// call is one request: param is the path's parameter, unescaped, and more are
// those behind it.
type call struct {
	param, query string
	more         []string
	header       map[string]string
	body         string
}

// exchange is a call with its answer.
type exchange struct {
	operation string
	call      call
	answer    answer
}

func readContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("%s: %v", openAPIFile, err)
	}
	c := &contract{doc: doc, routes: map[string]*routers.Route{}, seen: map[string]map[int]struct{}{}, kept: map[string]exchange{}}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.OperationID == "" || c.routes[operation.OperationID] != nil {
				t.Errorf("%s %s: operationId %q is empty or not its own", method, path, operation.OperationID)
			}
			c.routes[operation.OperationID] = &routers.Route{
				Spec: doc, Server: doc.Servers[0], Path: path, PathItem: item, Method: method, Operation: operation,
			}
			c.seen[operation.OperationID] = map[int]struct{}{}
		}
	}
	return c
}

// want makes a call, and holds its answer against the contract and the status.
func (c *contract) want(s *server, status int, operation string, in call) answer {
	s.t.Helper()
	route := c.routes[operation]
	if route == nil {
		s.t.Fatalf("the document has no operation %q", operation)
	}
	a := s.do(route.Method, in.target(route.Path), in.header, []byte(in.body))
	if a.status != status {
		s.t.Fatalf("%s %+.300v: %d %s, want %d", operation, in, a.status, a.body, status)
	}
	x := exchange{operation, in, a}
	if err := c.checkAnswer(x); err != nil {
		s.t.Errorf("%s %+.300v: %d %s: %v", operation, in, a.status, a.body, err)
	}
	if status < 300 {
		if err := c.checkRequest(x); err != nil {
			s.t.Errorf("%s %+.300v was taken, but: %v", operation, in, err)
		}
	}
	c.seen[operation][a.status] = struct{}{}
	c.keep(x)
	return a
}

// keep keeps the last answer of each shape for testBroken; what is not JSON, or not
// ours to describe, has none.
func (c *contract) keep(x exchange) {
	var body map[string]any
	if x.operation != "getOpenAPI" && x.operation != "getPayload" && json.Unmarshal(x.answer.body, &body) == nil {
		c.kept[strings.Join(slices.Sorted(maps.Keys(body)), " ")] = x
	}
}

// target is the request's path and query.
func (in call) target(path string) string {
	for name, value := range in.pathParams(path) {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	if in.query != "" {
		path += "?" + in.query
	}
	return path
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

func (in call) pathParams(path string) map[string]string {
	values := append([]string{in.param}, in.more...)
	params := map[string]string{}
	for i, name := range pathParam.FindAllStringSubmatch(path, -1) {
		params[name[1]] = values[i]
	}
	return params
}

// checkRequest validates a request that was taken: what the server takes the
// document must not forbid.
func (c *contract) checkRequest(x exchange) error {
	in, err := c.input(x)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// checkAnswer validates status, header and body.
func (c *contract) checkAnswer(x exchange) error {
	in, err := c.input(x)
	if err != nil {
		return err
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: x.answer.status, Header: x.answer.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	return openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(x.answer.body))
}

func (c *contract) input(x exchange) (*openapi3filter.RequestValidationInput, error) {
	route := c.routes[x.operation]
	request, err := http.NewRequest(route.Method, "http://server"+x.call.target(route.Path), strings.NewReader(x.call.body))
	if err != nil {
		return nil, err
	}
	for name, value := range x.call.header {
		request.Header.Set(name, value)
	}
	return &openapi3filter.RequestValidationInput{
		Request: request, Route: route, PathParams: x.call.pathParams(route.Path),
		Options: &openapi3filter.Options{SkipSettingDefaults: true},
	}, nil
}

// TestTheServerKeepsTheContract drives the program through every answer that
// the document has.
func TestTheServerKeepsTheContract(t *testing.T) {
	t.Parallel()
	c := readContract(t)
	t.Run("every route is in the document", c.testRoutes)
	t.Run("its words are those of the domain", c.testWords)
	t.Run("answers of a running server", c.testRunning)
	t.Run("answers while the database is away", c.testDatabaseAway)
	t.Run("answers while the database is broken", c.testDatabaseBroken)
	t.Run("answers that would take too long", c.testTooSlow)
	if t.Failed() {
		return
	}
	for id, route := range c.routes {
		for status := range route.Operation.Responses.Map() {
			code, err := strconv.Atoi(status)
			if _, seen := c.seen[id][code]; err != nil || !seen {
				t.Errorf("%s: no answer of status %s was seen; the document has it", id, status)
			}
		}
	}
	t.Run("an answer that breaks it is found out", c.testBroken)
}

// testRoutes compares the document with the routes as they stand in web's source,
// without the pages, whose handlers are named page… and form….
func (c *contract) testRoutes(t *testing.T) {
	served := routesInSource(t)
	if len(served) == 0 {
		t.Fatal("no route was found in web's source")
	}
	var documented []string
	for _, route := range c.routes {
		documented = append(documented, route.Method+" "+withoutNames(route.Path))
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("the server has\n%s\nthe document has\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}

func routesInSource(t *testing.T) []string {
	files, err := filepath.Glob("../../web/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				routes = append(routes, routesOf(call)...)
			}
			return true
		})
	}
	return routes
}

var httpMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// routesOf reads e.GET("/v1/events/:key", s.getEvent). An :action or
// :verb is one path for each.
func routesOf(call *ast.CallExpr) []string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 2 || !slices.Contains(httpMethods, method.Sel.Name) {
		return nil
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return nil
	}
	path, err := strconv.Unquote(literal.Value)
	if err != nil || strings.HasPrefix(path, "/static/") {
		return nil
	}
	if handler, ok := call.Args[1].(*ast.SelectorExpr); ok &&
		(strings.HasPrefix(handler.Sel.Name, "page") || strings.HasPrefix(handler.Sel.Name, "form")) {
		return nil
	}
	for name, words := range map[string][]any{":action": anys(dlq.Actions), ":verb": anys(orderVerbs)} {
		if strings.Contains(path, name) {
			var routes []string
			for _, word := range words {
				routes = append(routes, method.Sel.Name+" "+withoutNames(strings.Replace(path, name, word.(string), 1)))
			}
			return routes
		}
	}
	return []string{method.Sel.Name + " " + withoutNames(path)}
}

// orderVerbs are what an order can be told; the server names them nowhere.
var orderVerbs = []string{"start", "pause", "resume", "cancel"}

// withoutNames makes /a/:id and /a/{id} /a/{}.
func withoutNames(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, ":") || strings.HasPrefix(s, "{") {
			segments[i] = "{}"
		}
	}
	return strings.Join(segments, "/")
}

func (c *contract) testWords(t *testing.T) {
	if c.doc.Info.Version != release {
		t.Errorf("the document is of version %s, the program of %s", c.doc.Info.Version, release)
	}
	for name, want := range map[string][]any{
		"Stage": anys(dlq.Stages), "Class": anys(dlq.Classes), "Status": anys(dlq.Statuses), "LocatedBy": anys(dlq.LocatedBys),
		"Kind":       anys([]dlq.Kind{dlq.KindEvent, dlq.KindGeotask}),
		"EventState": anys([]dlq.EventState{dlq.EventAccepted, dlq.EventRetrying, dlq.EventProcessed, dlq.EventDead, dlq.EventSplit}),
	} {
		if got := c.doc.Components.Schemas[name].Value.Enum; !slices.Equal(got, want) {
			t.Errorf("%s is %v in the document, %v in the domain", name, got, want)
		}
	}
	for operation, more := range map[string][]string{
		"listLetters": {"limit", "after"}, "getStats": nil, "getTileJSON": nil, "exportCSV": nil, "exportGeoJSON": nil,
	} {
		var names []string
		for _, p := range c.routes[operation].Operation.Parameters {
			names = append(names, p.Value.Name)
		}
		if want := slices.Concat(dlq.FilterNames, more); !slices.Equal(names, want) {
			t.Errorf("%s takes %v in the document, %v in the domain", operation, names, want)
		}
	}
}

func anys[T ~string](words []T) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// contractBodyMax is both the largest body and what all bodies at once may take.
const contractBodyMax = 64 << 10

func (c *contract) testRunning(t *testing.T) {
	sink := newContractSink(t)
	s := startServer(t, map[string]string{
		"GEODLQ_SINK_URL": sink.url, "GEODLQ_SINK_TIMEOUT": "30s", "GEODLQ_UNDO_WINDOW": "1h",
		"GEODLQ_BODY_MAX": strconv.Itoa(contractBodyMax), "GEODLQ_IN_FLIGHT_MAX": strconv.Itoa(2 * contractBodyMax),
	})
	c.want(s, 200, "getHealth", call{})
	c.want(s, 200, "getReady", call{})
	if served, file := c.want(s, 200, "getOpenAPI", call{}).body, mustRead(t, openAPIFile); !bytes.Equal(served, file) {
		t.Error("the server's document is not the file")
	}
	c.acceptEvents(s)
	c.refuseEvents(s)
	c.followEvent(s, sink)
	c.countReports(s)
	c.refuseReports(s)
	c.readLetters(s)
	c.refuseQueries(s)
	c.refuseActions(s)
	c.actOnLetter(s, sink)
	c.order(s, sink)
	c.refuseOrders(s)
	c.readTiles(s)
	c.readLedger(s)
	c.overload(s)
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// contractSink answers 422 to keys that begin with refused, and to those that
// begin with held what a test sends to hold, once it does.
type contractSink struct {
	url  string
	held chan struct{} // a held request came
	hold chan int
}

func newContractSink(t *testing.T) *contractSink {
	sink := &contractSink{held: make(chan struct{}), hold: make(chan int)}
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch key := r.Header.Get("Idempotency-Key"); {
		case strings.HasPrefix(key, "refused"):
			http.Error(w, "no such parcel", http.StatusUnprocessableEntity)
		case strings.HasPrefix(key, "held"):
			select {
			case sink.held <- struct{}{}:
				w.WriteHeader(<-sink.hold)
			case <-over:
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	sink.url = server.URL
	return sink
}

const (
	contractPoint  = `{"type":"Feature","properties":{"name":"A"},"geometry":{"type":"Point","coordinates":[13.4,52.5]}}`
	contractBowtie = `{"type":"Polygon","coordinates":[[[13.4,52.5],[13.41,52.51],[13.41,52.5],[13.4,52.51],[13.4,52.5]]]}`
)

func geoJSON(key, body string) call {
	return call{header: map[string]string{"Content-Type": "application/geo+json", "Idempotency-Key": key}, body: body}
}

func (c *contract) acceptEvents(s *server) {
	s.t.Helper()
	c.want(s, 202, "postEvents", geoJSON("point", contractPoint))
	s.settle("point")
	if a := c.want(s, 202, "postEvents", geoJSON("point", contractPoint)).json(s.t); a["duplicate"] != true || a["state"] != "processed" {
		s.t.Errorf("sent again: %v", a)
	}
	c.want(s, 409, "postEvents", geoJSON("point", contractBowtie))
	for _, in := range []call{
		{header: map[string]string{"Content-Type": "text/plain", "Content-Crs": "<http://www.opengis.net/def/crs/EPSG/0/4326>"}, body: "POINT (52.5 13.4)"},
		{header: map[string]string{"Content-Type": "application/octet-stream", "Geodlq-Source": "cadastre", "Geodlq-Task": "import"}, body: "\x01"},
		{header: map[string]string{"Content-Type": "application/geo+json", "Content-Encoding": "br", "Idempotency-Key": "a/b%2F:c"}, body: contractPoint},
		{header: map[string]string{"Content-Type": "application/geo+json", "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "x"}, body: contractPoint},
		{header: map[string]string{"Content-Type": "application/cloudevents+json"}, body: `{"specversion":"1.0","type":"x","source":"/a","id":"2","data":` + contractPoint + `}`},
		{header: map[string]string{"Content-Type": "image/png"}, body: "\x89PNG"},
		{header: map[string]string{"Content-Type": "application/geo+json", "Idempotency-Key": "empty"}},
	} {
		if a := c.want(s, 202, "postEvents", in).json(s.t); a["job_id"] == nil {
			s.t.Errorf("%v was not spooled, and has no job", a)
		}
	}
	c.want(s, 200, "getEvent", call{param: "default:a/b%2F:c"})
	batch := map[string]string{"Content-Type": "application/x-ndjson", "Idempotency-Key": "batch"}
	c.want(s, 202, "postEvents", call{header: batch, body: contractPoint})
	a := c.want(s, 202, "postEvents", call{header: batch, body: contractBowtie + "\n" + contractPoint}).json(s.t)
	if len(a["rejected"].([]any)) != 1 || len(a["events"].([]any)) != 1 {
		s.t.Errorf("a batch with one taken key: %v", a)
	}
	c.want(s, 202, "postEvents", call{header: map[string]string{"Content-Type": "application/geo+json-seq"}})
}

func (c *contract) refuseEvents(s *server) {
	s.t.Helper()
	for _, refused := range []struct {
		status int
		header map[string]string
		body   string
	}{
		{400, map[string]string{"Idempotency-Key": "a#b"}, contractPoint},
		{400, map[string]string{"Idempotency-Key": ""}, contractPoint},
		{400, map[string]string{"Geodlq-Source": "a:b"}, contractPoint},
		{400, map[string]string{"Geodlq-Source": "default"}, contractPoint},
		{400, map[string]string{"Geodlq-Task": strings.Repeat("t", 129)}, contractPoint},
		{400, map[string]string{"ce-specversion": "1.0"}, contractPoint},
		{400, map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}, contractPoint},
		{403, map[string]string{"Sec-Fetch-Site": "cross-site"}, contractPoint},
		{413, nil, strings.Repeat("x", contractBodyMax+1)},
		{415, map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "br"}, contractPoint},
	} {
		c.want(s, refused.status, "postEvents", call{header: refused.header, body: refused.body})
	}
	for _, key := range []string{"unknown", "a#0", "%"} {
		c.want(s, 404, "getEvent", call{param: key})
	}
}

// followEvent sees an event in each of its states.
func (c *contract) followEvent(s *server, sink *contractSink) {
	s.t.Helper()
	state := func(key string) any {
		s.t.Helper()
		return c.want(s, 200, "getEvent", call{param: key}).json(s.t)["state"]
	}
	c.want(s, 202, "postEvents", geoJSON("held", contractPoint))
	<-sink.held
	if got := state("held"); got != "accepted" {
		s.t.Errorf("in its first try it is %v", got)
	}
	sink.hold <- http.StatusInternalServerError
	<-sink.held
	if got := state("held"); got != "retrying" {
		s.t.Errorf("in its second try it is %v", got)
	}
	sink.hold <- http.StatusNoContent
	s.settle("held")
	if got := state("held"); got != "processed" {
		s.t.Errorf("at its end it is %v", got)
	}
	c.want(s, 202, "postEvents", geoJSON("parts", `{"type":"FeatureCollection","features":[`+contractPoint+`,`+
		`{"type":"Feature","properties":null,"geometry":`+contractBowtie+`}]}`))
	s.settle("parts")
	for key, want := range map[string]string{"parts": "split", "parts#0": "processed", "parts#1": "dead"} {
		if got := state(key); got != want {
			s.t.Errorf("%s is %v, want %s", key, got, want)
		}
	}
}

const contractReport = `{"work_key":"scene/7/66/42","task":"tiles","source":"cog","error":"read failed","traceback":"at line 3",` +
	`"stage":"downstream","class":"oom","geometry":null,"src_crs":"EPSG:4326","tile":{"z":7,"x":66,"y":42},"bounds":[13,52,14,53],` +
	`"params":{"resampling":"cubic"},"payload":{"window":[0,0]},"payload_ref":{"uri":"s3://a"},"code_version":"1.9","run_id":"r","host":"h",` +
	`"http_status":null,"exit_code":137,"log_url":"https://example.org/log","trace_id":"t","event_time":"2026-01-31T03:00:00+01:00","labels":{"orbit":73}}`

func report(key, body string) call {
	in := call{header: map[string]string{"Content-Type": "application/json"}, body: body}
	if key != "" {
		in.header["Idempotency-Key"] = key
	}
	return in
}

func (c *contract) countReports(s *server) {
	s.t.Helper()
	c.want(s, 201, "reportFailure", report("first", contractReport))
	if a := c.want(s, 200, "reportFailure", report("first", contractReport)).json(s.t); a["duplicate"] != true || a["attempts"] != 1.0 {
		s.t.Errorf("the same report again: %v", a)
	}
	if a := c.want(s, 200, "reportFailure", report("", contractReport)).json(s.t); a["duplicate"] != false || a["attempts"] != 2.0 {
		s.t.Errorf("one report more: %v", a)
	}
	for i, geometry := range []string{
		`{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},{"type":"LineString","coordinates":[[1,2],[3,4]]}]}`,
		`{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]]]}`, `"MULTIPOINT ((1 2), (3 4))"`, `"MULTILINESTRING ((1 2, 3 4))"`,
		`"no geometry"`, `null`,
	} {
		c.want(s, 201, "reportFailure", report("", fmt.Sprintf(`{"work_key":"g%d","task":"t","error":"e","geometry":%s}`, i, geometry)))
	}
	c.want(s, 201, "reportFailure", report("", `{"work_key":"least","task":"t","error":"e"}`))
	c.want(s, 409, "reportFailure", report("first", strings.Replace(contractReport, "scene/", "other/", 1)))
}

func (c *contract) refuseReports(s *server) {
	s.t.Helper()
	for _, refused := range []struct {
		status int
		body   string
	}{
		{400, ``}, {400, `[]`}, {400, `{} {}`}, {400, "\xff"},
		{400, `{"work_key":"a#b","task":"t","error":"e"}`},
		{400, `{"work_key":"a","task":"t","error":"e","source":"a:b"}`},
		{413, strings.Repeat("x", contractBodyMax+1)},
		{422, `{"task":"t","error":"e"}`}, {422, `{"work_key":"a","error":"e"}`}, {422, `{"work_key":"a","task":"t"}`},
		{422, `{"work_key":5,"task":"t","error":"e"}`},
		{422, `{"work_key":"a","task":"t","error":"e","stage":"nowhere"}`},
		{422, `{"work_key":"a","task":"t","error":"e","class":"nothing"}`},
		{422, `{"work_key":"a","task":"t","error":"e","tile":{"z":3,"x":9,"y":0}}`},
		{422, `{"work_key":"a","task":"t","error":"e","bounds":[1,2,3]}`},
		{422, `{"work_key":"a","task":"t","error":"e","labels":[]}`},
		{422, `{"work_key":"a","task":"t","error":"e","event_time":"yesterday"}`},
	} {
		c.want(s, refused.status, "reportFailure", report("", refused.body))
	}
	c.want(s, 400, "reportFailure", report("a#b", contractReport))
	c.want(s, 403, "reportFailure", call{header: map[string]string{"Sec-Fetch-Site": "cross-site"}, body: contractReport})
}

// letterOf is the id of the only letter that a query finds.
func (c *contract) letterOf(s *server, query string) string {
	s.t.Helper()
	features := c.want(s, 200, "listLetters", call{query: query}).json(s.t)["features"].([]any)
	if len(features) != 1 {
		s.t.Fatalf("%s finds %d letters, want one", query, len(features))
	}
	return fmt.Sprintf("%.0f", features[0].(map[string]any)["id"])
}

// filtered are the operations that take a filter and no more, beside the list.
var filtered = []string{"getStats", "exportCSV", "exportGeoJSON", "getTileJSON"}

func (c *contract) readLetters(s *server) {
	s.t.Helper()
	geotask, dead, empty := c.letterOf(s, "work_key=cog:scene/7/66/42"), c.letterOf(s, "work_key=parts%230%23&work_key=parts%231"), c.letterOf(s, "work_key=empty")
	for _, id := range []string{geotask, empty, dead} {
		c.want(s, 200, "getLetter", call{param: id})
		c.want(s, 200, "getPayload", call{param: id})
		c.want(s, 200, "getHistory", call{param: id})
	}
	c.want(s, 200, "getPayload", call{param: c.letterOf(s, "source=cadastre")})
	c.want(s, 404, "getPayload", call{param: c.letterOf(s, "work_key=least")})
	s.exec("update dead_letters set blob = 'mislaid' where work_key = 'cog:scene/7/66/42'")
	c.want(s, 410, "getPayload", call{param: geotask})
	s.exec("update dead_letters set blob = null where work_key = 'cog:scene/7/66/42'")
	for _, operation := range []string{"getLetter", "getPayload", "getHistory"} {
		for _, id := range []string{"999999", "0", "x", "99999999999999999999"} {
			c.want(s, 404, operation, call{param: id})
		}
	}
	filters := []string{
		"", "bbox=5.5,47.2,15.1,55.1", "bbox=170,-50,-170,50", "stage=validate&stage=parse&class=invalid_geometry", "status=pending&status=replayed",
		"since=24h", "since=7d&until=2100-01-01T00:00:00Z", "task=tiles&source=cog", "group=0123456789abcdef", "crs=EPSG:4326", "code_version=1.9",
		"located_by=tile&located_by=geometry&located=true", "located=false", "q=read", "prop=params.resampling:cubic&prop=labels.orbit:73", "work_key=a&work_key=b", "q=",
	}
	for _, filter := range filters {
		c.want(s, 200, "listLetters", call{query: filter})
		for _, operation := range filtered {
			c.want(s, 200, operation, call{query: filter})
		}
	}
	c.readPages(s)
}

// readPages follows the next links to the end.
func (c *contract) readPages(s *server) {
	s.t.Helper()
	matched, returned := 0.0, 0.0
	for query := "limit=3&since=24h&located=true"; query != ""; {
		page := c.want(s, 200, "listLetters", call{query: query}).json(s.t)
		if total, first := page["numberMatched"].(float64); first {
			if matched != 0 {
				s.t.Error("numberMatched is on a page behind the first")
			}
			matched = total
		}
		returned += page["numberReturned"].(float64)
		query = ""
		for _, link := range page["links"].([]any) {
			if link := link.(map[string]any); link["rel"] == "next" {
				_, query, _ = strings.Cut(link["href"].(string), "?")
			}
		}
	}
	if matched == 0 || returned != matched {
		s.t.Errorf("the pages hold %v letters of %v", returned, matched)
	}
}

func (c *contract) refuseQueries(s *server) {
	s.t.Helper()
	for _, query := range []string{
		"stagee=parse", "bbox=1,2,3", "bbox=0,50,1,40", "bbox=a,b,c,d", "stage=nowhere", "class=nothing", "status=open", "since=yesterday",
		"since=-24h", "since=1h&until=2h", "located=yes", "located_by=hand", "prop=color:red", "q=a&q=b", "q=%00", "q=%zz", "q=a;b",
	} {
		c.want(s, 400, "listLetters", call{query: query})
		for _, operation := range filtered {
			c.want(s, 400, operation, call{query: query})
		}
		c.want(s, 400, "getTile", call{param: "0", more: []string{"0", "0"}, query: query})
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=many", "after=here"} {
		c.want(s, 400, "listLetters", call{query: query})
		c.want(s, 400, "getStats", call{query: query})
	}
}

var actions = []string{"redriveLetter", "quarantineLetter", "releaseLetter", "abandonLetter"}

func act(id, reason string) call {
	in := call{param: id, header: map[string]string{"Content-Type": "application/json"}}
	if reason != "" {
		in.body = `{"reason":"` + reason + `"}`
	}
	return in
}

func (c *contract) actOnLetter(s *server, sink *contractSink) {
	s.t.Helper()
	c.want(s, 202, "postEvents", geoJSON("refused", contractPoint))
	s.settle("refused")
	id := c.letterOf(s, "work_key=refused")
	for _, operation := range []string{"quarantineLetter", "releaseLetter", "abandonLetter", "releaseLetter"} {
		c.want(s, 200, operation, act(id, "a test"))
	}
	c.want(s, 409, "releaseLetter", act(id, ""))
	c.want(s, 200, "quarantineLetter", act(id, ""))
	c.want(s, 409, "redriveLetter", act(id, ""))
	c.want(s, 409, "quarantineLetter", act(id, ""))
	c.want(s, 409, "redriveLetter", act(c.letterOf(s, "work_key=cog:scene/7/66/42"), ""))

	c.want(s, 200, "releaseLetter", act(id, ""))
	c.want(s, 200, "redriveLetter", act(id, "a test"))
	c.want(s, 200, "getEvent", call{param: "refused"})
	c.want(s, 409, "abandonLetter", act(id, "a test"))
	c.want(s, 200, "undoLetter", call{param: id})
	c.want(s, 409, "undoLetter", call{param: id})
	c.want(s, 200, "getHistory", call{param: id})
}

// order redrives a letter by an order, and holds it in the sink meanwhile.
func (c *contract) order(s *server, sink *contractSink) {
	s.t.Helper()
	c.want(s, 202, "postEvents", geoJSON("held/again", contractPoint))
	<-sink.held
	sink.hold <- http.StatusUnprocessableEntity
	s.settle("held/again")
	letter := c.letterOf(s, "work_key=held/again")
	preview := c.want(s, 200, "postRedrive", call{header: asJSON, body: `{"ids":[` + letter + `],"dry_run":true,"reason":"a test"}`})
	id := fmt.Sprintf("%.0f", preview.json(s.t)["id"])
	c.want(s, 409, "pauseRedrive", call{param: id})
	c.want(s, 200, "startRedrive", call{param: id})
	c.want(s, 409, "startRedrive", call{param: id})
	<-sink.held
	c.want(s, 409, "undoLetter", call{param: letter})
	c.want(s, 409, "resumeRedrive", call{param: id})
	c.want(s, 200, "pauseRedrive", call{param: id})
	c.want(s, 200, "resumeRedrive", call{param: id})
	c.want(s, 200, "getRedriveTile", call{param: id, more: []string{"0", "0", "0"}})
	c.want(s, 200, "cancelRedrive", call{param: id})
	c.want(s, 409, "cancelRedrive", call{param: id})
	sink.hold <- http.StatusNoContent
	s.settle("held/again")
	c.want(s, 200, "getRedrive", call{param: id})
	c.want(s, 202, "postRedrive", call{header: asJSON, body: `{"action":"quarantine","filter":{"everything":true,"bbox":[170,-50,-170,50],` +
		`"stage":"crs","class":["crs_mismatch","unknown"],"since":"24h","located":true,"q":null}}`})
	s.exec("insert into redrives (actor) select 'a test' from generate_series(1, 101)")
	next := c.want(s, 200, "listRedrives", call{}).json(s.t)["next"]
	_, before, _ := strings.Cut(fmt.Sprint(next), "?")
	c.want(s, 200, "listRedrives", call{query: before})
	c.want(s, 200, "listLetters", call{query: "status=replayed"})
	c.want(s, 200, "exportGeoJSON", call{query: "status=replayed"})
}

var asJSON = map[string]string{"Content-Type": "application/json"}

func (c *contract) refuseOrders(s *server) {
	s.t.Helper()
	for status, bodies := range map[int][]string{
		400: {``, `[]`, `{} {}`},
		413: {strings.Repeat(" ", 1<<20+1)},
		422: {
			`{}`, `{"filter":{}}`, `{"ids":[]}`, `{"ids":[1],"filter":{"stage":"crs"}}`, `{"ids":"1"}`, `{"filter":{"stagee":"crs"}}`, `{"filter":{"stage":"nowhere"}}`,
			`{"filter":{"stage":{}}}`, `{"ids":[1],"action":"undo"}`, `{"ids":[1],"action":"abandon"}`, `{"ids":[1],"rate_per_second":5}`, `{"ids":[1],"canary":{"size":1}}`,
		},
	} {
		for _, body := range bodies {
			c.want(s, status, "postRedrive", call{header: asJSON, body: body})
		}
	}
	elsewhere := map[string]string{"Sec-Fetch-Site": "cross-site"}
	c.want(s, 403, "postRedrive", call{header: elsewhere})
	c.want(s, 403, "undoLetter", call{param: "1", header: elsewhere})
	c.want(s, 404, "undoLetter", call{param: "999999"})
	c.want(s, 404, "getRedrive", call{param: "999999"})
	c.want(s, 404, "getRedrive", call{param: "x"})
	for _, verb := range orderVerbs {
		c.want(s, 403, verb+"Redrive", call{param: "1", header: elsewhere})
		c.want(s, 404, verb+"Redrive", call{param: "999999"})
	}
	c.want(s, 400, "listRedrives", call{query: "before=x"})
}

func (c *contract) readTiles(s *server) {
	s.t.Helper()
	at := func(query, z, x, y string, header map[string]string) call {
		return call{query: query, param: z, more: []string{x, y}, header: header}
	}
	etag := c.want(s, 200, "getTile", at("status=pending&status=replayed", "0", "0", "0", nil)).header.Get("ETag")
	c.want(s, 304, "getTile", at("status=pending&status=replayed", "0", "0", "0", map[string]string{"If-None-Match": etag}))
	c.want(s, 200, "getTile", at("", "12", "2200", "1343", nil))
	c.want(s, 204, "getTile", at("", "9", "511", "511", nil))
	order := func(tile ...string) call { return call{param: "1", more: tile} }
	c.want(s, 204, "getRedriveTile", order("9", "511", "511"))
	c.want(s, 304, "getRedriveTile", call{param: "1", more: []string{"0", "0", "0"}, header: map[string]string{"If-None-Match": "*"}})
	c.want(s, 404, "getRedriveTile", call{param: "x", more: []string{"0", "0", "0"}})
	for _, tile := range [][]string{{"0", "1", "0"}, {"23", "0", "0"}, {"00", "0", "0"}, {"a", "0", "0"}} {
		c.want(s, 400, "getTile", at("", tile[0], tile[1], tile[2], nil))
		c.want(s, 400, "getRedriveTile", order(tile...))
	}
}

func (c *contract) refuseActions(s *server) {
	s.t.Helper()
	id := c.letterOf(s, "work_key=least")
	for _, operation := range actions {
		for _, body := range []string{`[]`, `{`, `{} {}`} {
			c.want(s, 400, operation, call{param: id, body: body})
		}
		c.want(s, 403, operation, call{param: id, header: map[string]string{"Sec-Fetch-Site": "cross-site"}})
		c.want(s, 404, operation, act("999999", "a test"))
		c.want(s, 404, operation, act("x", "a test"))
		c.want(s, 413, operation, call{param: id, body: strings.Repeat(" ", 64<<10+1)})
		c.want(s, 422, operation, call{param: id, body: `{"reason":5}`})
	}
	c.want(s, 422, "abandonLetter", act(id, ""))
	c.want(s, 422, "abandonLetter", act(id, " "))
}

// readLedger reads it as it is, then with a figure in it that nothing bears out.
func (c *contract) readLedger(s *server) {
	s.t.Helper()
	s.exec(`insert into ledger_deltas (day, source, received, in_flight) values ((now() at time zone 'UTC')::date, 'nobody', 1, 1)`)
	if _, err := s.command("ledger", "-check"); err == nil {
		s.t.Error("the check passes over a unit that never came")
	}
	c.want(s, 200, "getLedger", call{query: "source=default&source=nobody&since=" + dlq.Today(time.Now()).Format(time.DateOnly)})
	c.want(s, 200, "ledgerCSV", call{})
	for _, operation := range []string{"getLedger", "ledgerCSV"} {
		for _, query := range []string{
			"since=24h", "since=2026-13-01", "until=yesterday", "since=2026-01-02&until=2026-01-02", "since=9999-01-01",
			"since=2020-01-01", "since=2026-01-01&since=2026-01-02", "sources=a", "source=%00",
		} {
			c.want(s, 400, operation, call{query: query})
		}
	}
}

// overload takes the whole budget for bodies that do not come to their end, 4 KiB each. What
// is no larger than that is taken all the same.
func (c *contract) overload(s *server) {
	s.t.Helper()
	for range 2 * contractBodyMax / (4 << 10) {
		c.hold(s)
	}
	pad := strings.Repeat(" ", 5000)
	s.eventually("the budget is taken", func() bool {
		c.hold(s) // an earlier one may have been refused
		return s.post("overloaded", contractPoint+pad).status == 503
	})
	c.want(s, 503, "postEvents", geoJSON("overloaded", contractPoint+pad))
	c.want(s, 503, "reportFailure", report("", contractReport+pad))
	c.want(s, 503, "postRedrive", call{header: asJSON, body: `{"ids":[1]}` + pad})
	for _, operation := range actions {
		in := act("1", "a test")
		in.body += pad
		c.want(s, 503, operation, in)
	}
	c.want(s, 202, "postEvents", geoJSON("small", contractPoint))
}

// hold sends the head of a request, and the beginning of its body.
func (c *contract) hold(s *server) {
	s.t.Helper()
	s.eventually("the server waits for a body", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: geodlq\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", contractBodyMax)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			return false // an earlier body is only just let go
		}
		_, err = conn.Write(make([]byte, 5000))
		return err == nil
	})
}

// everyCall is a call of each operation that asks the database.
func everyCall() map[string]call {
	calls := map[string]call{
		"postEvents": geoJSON("point", contractPoint), "getEvent": {param: "point"}, "reportFailure": report("", contractReport),
		"listLetters": {}, "getLetter": {param: "1"}, "getPayload": {param: "1"}, "getHistory": {param: "1"}, "getStats": {},
	}
	for _, operation := range actions {
		calls[operation] = act("1", "a test")
	}
	maps.Copy(calls, map[string]call{
		"undoLetter": {param: "1"}, "postRedrive": {header: asJSON, body: `{"ids":[1]}`}, "listRedrives": {}, "getRedrive": {param: "1"},
		"getTile": {param: "0", more: []string{"0", "0"}}, "getRedriveTile": {param: "1", more: []string{"0", "0", "0"}}, "exportCSV": {}, "exportGeoJSON": {},
		"getLedger": {}, "ledgerCSV": {},
	})
	for _, verb := range orderVerbs {
		calls[verb+"Redrive"] = call{param: "1"}
	}
	return calls
}

func (c *contract) testDatabaseAway(t *testing.T) {
	cable := newCable(t, pgtest.URL(t))
	s := startCommand(t, "serve", cable.url, map[string]string{"GEODLQ_SPOOL_MAX": "0"})
	spooling := startCommand(t, "web", cable.url, nil)
	cable.cut()
	defer cable.mend() // so that the programs can stop
	c.want(spooling, 202, "postEvents", geoJSON("spooled", contractPoint))
	c.want(spooling, 200, "getEvent", call{param: "spooled"})
	c.want(spooling, 202, "reportFailure", report("", contractReport))
	c.want(spooling, 200, "getReady", call{})
	for operation, in := range everyCall() {
		c.want(s, 503, operation, in)
	}
	c.want(s, 503, "getReady", call{})
	c.want(s, 503, "getReady", call{header: map[string]string{"Accept": "text/html"}})
	c.want(s, 200, "getHealth", call{})
}

func (c *contract) testTooSlow(t *testing.T) {
	s := startServer(t, map[string]string{"GEODLQ_READ_TIMEOUT": "50ms"})
	s.slow()
	for operation, in := range map[string]call{"listLetters": {query: "q=x"}, "getStats": {query: "q=x"}, "getTile": {param: "0", more: []string{"0", "0"}, query: "q=x"},
		"exportCSV": {query: "q=x"}, "exportGeoJSON": {query: "q=x"}, "postRedrive": {header: asJSON, body: `{"filter":{"q":"x"}}`}} {
		c.want(s, 422, operation, in)
	}
}

func (c *contract) testDatabaseBroken(t *testing.T) {
	s := startServer(t, nil)
	for _, table := range []string{"dead_letters", "events", "redrives", "redrive_letters", "ledger", "letter_folds"} {
		s.exec("alter table " + table + " rename to mislaid_" + table)
	}
	for operation, in := range everyCall() {
		c.want(s, 500, operation, in)
	}
}

// cable is a connection to the database that can be cut.
type cable struct {
	url   string
	t     *testing.T
	to    string
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// newCable stands between a program and the Unix socket of databaseURL.
func newCable(t *testing.T, databaseURL string) *cable {
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	socket := "/.s.PGSQL." + query.Get("port")
	dir, err := os.MkdirTemp("", "cable") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &cable{t: t, to: query.Get("host") + socket}
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	k.url = u.String()
	listener, err := net.Listen("unix", dir+socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			k.carry(conn)
		}
	}()
	return k
}

func (k *cable) carry(from net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	to, err := net.Dial("unix", k.to)
	if err != nil || k.isCut {
		from.Close()
		if err == nil {
			to.Close()
		}
		return
	}
	k.conns = append(k.conns, from, to)
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		dst.Close()
	}
	go pass(to, from)
	go pass(from, to)
}

func (k *cable) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = true
	for _, conn := range k.conns {
		conn.Close()
	}
	k.conns = nil
}

func (k *cable) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = false
}

// free are the objects whose names are whoever sent them's.
var free = []string{"labels", "params", "payload_ref", "filter", "fields", "refused"}

// leftOut are the names that need not be there, nullable those that may be null;
// geometry and anchor are not, since the letters kept here have a place.
var (
	leftOut  = []string{"numberMatched", "errors"}
	nullable = []string{
		"job_id", "getEvent.letter_id", "parent", "finished_at", "http_status", "exit_code", "invalid_at", "tile", "properties.bounds", "payload_ref",
		"event_time", "redriven_at", "resolved_at", "not_before", "latest",
		"rate_per_second", "canary", "stopped_because", "started_at", "ended_at", "next", "checked_at",
	}
)

// testBroken is the negative control: each object of each kind of answer, with
// one name taken out, null, or too many, must not pass.
func (c *contract) testBroken(t *testing.T) {
	for _, x := range c.kept {
		id := x.operation
		if err := c.checkAnswer(x); err != nil {
			t.Errorf("%s: what passed before does not now: %v", id, err)
		}
		body := x.answer.json(t)
		passes := func() bool {
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			x.answer.body = text
			return c.checkAnswer(x) == nil
		}
		eachObject(body, id, func(path string, object map[string]any) { breakObject(t, path, object, passes) })
		x.answer.status = 299
		if passes() {
			t.Errorf("%s passes with a status that the document does not have", id)
		}
	}
}

func breakObject(t *testing.T, path string, object map[string]any, passes func() bool) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value := object[name]
		delete(object, name)
		if got, want := passes(), slices.Contains(leftOut, name); got != want {
			t.Errorf("%s without %s passes: %v, want %v", path, name, got, want)
		}
		object[name] = nil
		mayBeNull := value == nil || slices.ContainsFunc(nullable, func(n string) bool { return strings.HasSuffix("."+path+"."+name, "."+n) })
		if got, want := passes(), mayBeNull; got != want {
			t.Errorf("%s with %s null passes: %v, want %v", path, name, got, want)
		}
		object[name] = value
	}
	object["surprise"] = 1
	if passes() {
		t.Errorf("%s passes with a name that the document does not have", path)
	}
	delete(object, "surprise")
}

// eachObject calls visit for v and the objects in it; of an array, for the first.
func eachObject(v any, path string, visit func(path string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(path, v)
		for name, inner := range v {
			if _, object := inner.(map[string]any); !object || !slices.Contains(free, name) {
				eachObject(inner, path+"."+name, visit)
			}
		}
	case []any:
		if len(v) > 0 {
			eachObject(v[0], path+"[0]", visit)
		}
	}
}

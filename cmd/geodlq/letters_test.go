package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// list follows the next links of a query and returns the work keys, newest first.
func (s *server) list(query string) []string {
	s.t.Helper()
	var keys []string
	for path := "/v1/dead-letters?" + query; path != ""; {
		a := s.get(path)
		if a.status != 200 {
			s.t.Fatalf("GET %s: %d %s", path, a.status, a.body)
		}
		page := a.json(s.t)
		for _, f := range page["features"].([]any) {
			keys = append(keys, properties(f.(map[string]any))["work_key"].(string))
		}
		path = ""
		for _, l := range page["links"].([]any) {
			if l := l.(map[string]any); l["rel"] == "next" {
				path = l["href"].(string)
			}
		}
		if len(keys) > 10_000 {
			s.t.Fatal("the list has no end")
		}
	}
	return keys
}

func TestTheListPagesEveryLetterOnceAlsoOfOneTimestamp(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for i := range 25 {
		s.report(map[string]any{"work_key": fmt.Sprintf("k%02d", i)}, "")
	}
	s.exec("update dead_letters set failed_at = '2026-01-01T00:00:00Z'")
	keys := s.list("limit=4")
	seen := map[string]bool{}
	for _, k := range keys {
		seen[k] = true
	}
	if len(keys) != 25 || len(seen) != 25 {
		t.Errorf("%d letters, %d different ones", len(keys), len(seen))
	}
	first := s.get("/v1/dead-letters?limit=4").json(t)
	if first["numberMatched"] != 25.0 || first["numberReturned"] != 4.0 {
		t.Errorf("%v of %v", first["numberReturned"], first["numberMatched"])
	}
}

func TestEachFilterSelectsWhatItSaysInListAndStats(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	point := func(lon, lat float64) map[string]any {
		return map[string]any{"type": "Point", "coordinates": []float64{lon, lat}}
	}
	for key, fields := range map[string]map[string]any{
		"berlin": {"geometry": point(13.4, 52.5), "source": "a", "class": "oom", "labels": map[string]any{"orbit": 73}, "code_version": "v1"},
		"suva":   {"geometry": point(178.4, -18.1), "task": "other", "stage": "crs", "class": "crs_mismatch", "src_crs": "EPSG:4326"},
		"samoa":  {"geometry": point(-172, -13.6), "params": map[string]any{"resampling": "cubic"}},
		"edge":   {"geometry": point(180, 10), "error": "50% of_it"},
		"pole":   {"geometry": point(0, 90), "payload": map[string]any{"properties": map[string]any{"name": "x"}}},
		"tile":   {"tile": map[string]int{"z": 3, "x": 4, "y": 2}},
		"none":   {"error": "nowhere"},
	} {
		fields["work_key"] = key
		if a := s.report(fields, ""); a.status != 201 {
			t.Fatalf("%s: %d %s", key, a.status, a.body)
		}
	}
	s.exec("update dead_letters set failed_at = now() - interval '2 hours' where work_key = 'suva'")
	s.exec("update dead_letters set status = 'quarantined' where work_key = 'pole'")
	s.exec("update dead_letters set status = 'abandoned' where work_key = 'none'")
	group := properties(s.get("/v1/dead-letters?work_key=suva").json(t)["features"].([]any)[0].(map[string]any))["group"].(string)
	for query, want := range map[string]string{
		"":                                    "a:berlin edge pole samoa suva tile",
		"bbox=13,52,14,53":                    "a:berlin",
		"bbox=13.4,52.5,13.4,52.5":            "a:berlin",
		"bbox=170,-20,-170,20":                "edge samoa suva",
		"bbox=-180,-90,180,90":                "a:berlin edge pole samoa suva tile",
		"bbox=-10,89,10,90":                   "pole",
		"stage=crs":                           "suva",
		"stage=crs&stage=downstream":          "a:berlin edge pole samoa suva tile",
		"class=oom&class=crs_mismatch":        "a:berlin suva",
		"status=quarantined":                  "pole",
		"status=abandoned&status=quarantined": "none pole",
		"since=1h":                            "a:berlin edge pole samoa tile",
		"until=1h":                            "suva",
		"task=other":                          "suva",
		"source=a":                            "a:berlin",
		"group=" + group:                      "suva",
		"crs=EPSG:4326":                       "suva",
		"code_version=v1":                     "a:berlin",
		"located_by=tile":                     "tile",
		"located=false&status=abandoned":      "none",
		"located=true&task=other":             "suva",
		"q=50%25":                             "edge",
		"q=of_it":                             "edge",
		"q=ofXit":                             "",
		"q=BERLIN":                            "a:berlin",
		"prop=labels.orbit:73":                "a:berlin",
		"prop=params.resampling:cubic":        "samoa",
		"prop=payload.properties.name:x":      "pole",
		"work_key=suva&work_key=edge":         "edge suva",
		"bbox=&stage=":                        "a:berlin edge pole samoa suva tile",
	} {
		keys := s.list(query)
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s selects %q, want %q", query, got, want)
		}
		stats := s.get("/v1/stats?" + query).json(t)
		if stats["total"] != float64(len(keys)) {
			t.Errorf("%s: stats count %v, the list %d", query, stats["total"], len(keys))
		}
		for _, by := range []string{"by_stage", "by_class", "by_status"} {
			sum := 0.0
			for _, c := range stats[by].([]any) {
				sum += c.(map[string]any)["count"].(float64)
			}
			if sum != stats["total"] {
				t.Errorf("%s: %s sum to %v, not %v", query, by, sum, stats["total"])
			}
		}
		bars := 0.0
		for _, b := range stats["timeline"].(map[string]any)["buckets"].([]any) {
			for _, n := range b.(map[string]any)["by_class"].(map[string]any) {
				bars += n.(float64)
			}
		}
		if bars != stats["total"] || stats["located"].(float64)+stats["unlocated"].(float64) != stats["total"] {
			t.Errorf("%s: the timeline sums to %v: %v", query, bars, stats)
		}
	}
	for _, query := range []string{"stgae=parse", "limit=0", "limit=1001", "after=x", "bbox=1", "%zz=1", "status=open"} {
		for _, path := range []string{"/v1/dead-letters?", "/?"} {
			if a := s.get(path + query); a.status != 400 {
				t.Errorf("%s%s: %d", path, query, a.status)
			}
		}
	}
}

func TestActionsFollowTheTableAndSayWhoWasFirst(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.post("k", bowtie)
	id := s.settle("k")["letter_id"]
	if a := s.do("POST", fmt.Sprintf("/v1/dead-letters/%.0f/abandon", id), nil, nil); a.status != 422 {
		t.Errorf("abandoned without a reason: %d %s", a.status, a.body)
	}
	for _, step := range []struct {
		action string
		status int
		after  string
	}{
		{"release", 409, "pending"}, {"quarantine", 200, "quarantined"}, {"quarantine", 409, "quarantined"}, {"redrive", 409, "quarantined"},
		{"release", 200, "pending"}, {"abandon", 200, "abandoned"}, {"redrive", 409, "abandoned"}, {"quarantine", 409, "abandoned"}, {"release", 200, "pending"},
	} {
		a := s.act(id, step.action)
		if a.status != step.status || s.statusOf(id) != step.after {
			t.Fatalf("%+v: %d %s, now %s", step, a.status, a.body, s.statusOf(id))
		}
		if a.status == 409 && step.after != "pending" && !strings.Contains(string(a.body), "by api") {
			t.Errorf("%+v: it does not say who was first: %s", step, a.body)
		}
	}
	for path, want := range map[string]int{"/v1/dead-letters/999": 404, "/v1/dead-letters/x": 404, "/v1/dead-letters/999/payload": 404, "/v1/dead-letters/999/history": 404, "/v1/none": 404} {
		if a := s.get(path); a.status != want || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.act(999.0, "redrive"); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.act(id, "explode"); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestThePagesShowTheLettersAndTheirFormsWork(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	html := map[string]string{"Accept": "text/html"}
	if a := s.do("GET", "/", html, nil); a.status != 200 || !strings.Contains(string(a.body), "/v1/events") {
		t.Errorf("the empty queue does not say how to send an event: %d", a.status)
	}
	s.post("page", strings.ReplaceAll(bowtie, `"properties":{}`, `"properties":{"n":9007199254740993,"x":"<script>alert(1)</script>"}`))
	id := s.settle("page")["letter_id"]
	list := s.do("GET", "/", html, nil)
	if !strings.Contains(string(list.body), fmt.Sprintf("/letters/%.0f", id)) || !strings.Contains(string(list.body), "Self-intersection") {
		t.Errorf("the list does not show the letter")
	}
	page := s.do("GET", fmt.Sprintf("/letters/%.0f", id), html, nil)
	for _, want := range []string{"9007199254740993", "&lt;script&gt;", "Self-intersection", "invalid_geometry"} {
		if !strings.Contains(string(page.body), want) {
			t.Errorf("the letter does not show %s", want)
		}
	}
	if strings.Contains(string(page.body), "<script>alert") {
		t.Error("a payload's script is on the page")
	}
	if csp := page.header.Get("Content-Security-Policy"); csp == "" || strings.Contains(csp, "unsafe") {
		t.Errorf("CSP %q", csp)
	}
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
	path := fmt.Sprintf("/letters/%.0f/", id)
	if a := s.do("POST", path+"quarantine", form, []byte("reason=later")); a.status != 303 || s.statusOf(id) != "quarantined" {
		t.Errorf("quarantine: %d", a.status)
	}
	if a := s.do("POST", path+"redrive", form, nil); a.status != 409 || !strings.Contains(string(a.body), "quarantined since") {
		t.Errorf("redrive of a quarantined letter: %d", a.status)
	}
	s.do("POST", path+"release", form, nil)
	a := s.do("POST", path+"quarantine", form, []byte(url.Values{"back": {"/?class=oom"}}.Encode()))
	if a.status != 303 || a.header.Get("Location") != "/?class=oom" {
		t.Errorf("back: %d %s", a.status, a.header.Get("Location"))
	}
	for _, back := range []string{"//evil.example/", "https://evil.example/", "javascript:alert(1)", "/\\evil.example", "\\\\evil.example"} {
		s.act(id, "release")
		a := s.do("POST", path+"quarantine", form, []byte(url.Values{"back": {back}}.Encode()))
		if location := a.header.Get("Location"); !strings.HasPrefix(location, "/letters/") {
			t.Errorf("back to %q goes to %q", back, location)
		}
	}
	cross := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
	if a := s.do("POST", path+"release", cross, nil); a.status != 403 {
		t.Errorf("a form of another site: %d", a.status)
	}
	if a := s.do("GET", "/letters/999", html, nil); a.status != 404 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("no such letter: %d %s", a.status, a.header.Get("Content-Type"))
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200} {
		if a := s.get(path); a.status != want {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func TestCoordinatesAreDrawnAsSentWhereNoneAreStorable(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for key, body := range map[string]string{
		"unclosed": `{"type":"Polygon","coordinates":[[[10,50],[11,50],[11,51],[10,51]]]}`,
		"round":    `{"type":"LineString","coordinates":[[538.5,-18],[540.5,-18]]}`,
		"metres":   `{"type":"Point","coordinates":[1489199.33,6894701.26]}`,
	} {
		s.post(key, body)
		id := s.settle(key)["letter_id"]
		if l := s.letter(id); l["geometry"] != nil {
			t.Errorf("%s has a geometry: %v", key, l)
		}
		page := string(s.do("GET", fmt.Sprintf("/letters/%.0f", id), map[string]string{"Accept": "text/html"}, nil).body)
		drawn := strings.Contains(page, "&#34;sent&#34;:")
		if want := key != "metres"; drawn != want {
			t.Errorf("%s: drawn %v, want %v", key, drawn, want)
		}
		if key == "round" && !strings.Contains(page, "[178.5,-18]") {
			t.Error("it is not drawn where it lies")
		}
		if key == "metres" && !strings.Contains(page, "no degrees") {
			t.Error("it does not say why nothing is drawn")
		}
	}
}

package static

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestURLIsHashed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"app.css", "favicon.svg", "inter-latin-wght-normal.woff2", "jetbrains-mono-latin-wght-normal.woff2", "app.js", "map.js", "maplibre.js", "maplibre-worker.js", "basemap.json"} {
		stem, ext, _ := strings.Cut(name, ".")
		if got := URL(name); !regexp.MustCompile(`^/static/` + stem + `-[0-9A-Za-z]{8,10}\.` + ext + `$`).MatchString(got) {
			t.Errorf("URL(%q) = %q", name, got)
		}
	}
}

func TestURLOfWhatWasNotBuiltPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	URL("missing.css")
}

func TestHandler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, method, path, accept string

		status            int
		contentType, code string
		vary              bool
	}{
		{"style sheet", "GET", URL("app.css"), "", 200, "text/css; charset=utf-8", "", true},
		{"style sheet to a browser", "GET", URL("app.css"), "gzip, deflate, br, zstd", 200, "text/css; charset=utf-8", "gzip", true},
		{"style sheet to a wildcard", "GET", URL("app.css"), "br, *;q=0.1", 200, "text/css; charset=utf-8", "gzip", true},
		{"style sheet to one who refuses gzip", "GET", URL("app.css"), "*, gzip;q=0", 200, "text/css; charset=utf-8", "", true},
		{"head of the style sheet", "HEAD", URL("app.css"), "gzip", 200, "text/css; charset=utf-8", "gzip", true},
		{"icon", "GET", URL("favicon.svg"), "gzip", 200, "image/svg+xml", "gzip", true},
		{"font is not packed twice", "GET", URL("inter-latin-wght-normal.woff2"), "gzip", 200, "font/woff2", "", false},
		{"script", "GET", URL("app.js"), "gzip", 200, "text/javascript; charset=utf-8", "gzip", true},
		{"worker of the map", "GET", URL("maplibre-worker.js"), "gzip", 200, "text/javascript; charset=utf-8", "gzip", true},
		{"basemap", "GET", URL("basemap.json"), "gzip", 200, "application/json", "gzip", true},
		{"licence of the map", "GET", URL("maplibre-license.txt"), "", 200, "text/plain; charset=utf-8", "", true},
		{"licence of a font", "GET", URL("inter-license.txt"), "", 200, "text/plain; charset=utf-8", "", true},
		{"unhashed name", "GET", "/static/app.css", "", 404, "", "", false},
		{"another hash", "GET", "/static/app-0000000000.css", "", 404, "", "", false},
		{"gzipped twin by its own name", "GET", URL("app.css") + ".gz", "", 404, "", "", false},
		{"manifest", "GET", "/static/manifest.json", "", 404, "", "", false},
		{"directory", "GET", "/static/", "", 404, "", "", false},
		{"directory without slash", "GET", "/static", "", 404, "", "", false},
		{"way out", "GET", "/static/../static.go", "", 404, "", "", false},
		{"elsewhere", "GET", "/app.css", "", 404, "", "", false},
		{"post", "POST", URL("app.css"), "", 405, "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(tt.method, "http://geodlq.test/", nil)
			r.URL.Path = tt.path
			if tt.accept != "" {
				r.Header.Set("Accept-Encoding", tt.accept)
			}
			w := httptest.NewRecorder()
			Handler().ServeHTTP(w, r)
			h := w.Header()
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d", w.Code, tt.status)
			}
			if tt.status != http.StatusOK {
				if cache := h.Get("Cache-Control"); strings.Contains(cache, "immutable") {
					t.Errorf("an error is cached: %q", cache)
				}
				return
			}
			if got := h.Get("Content-Type"); got != tt.contentType {
				t.Errorf("Content-Type %q, want %q", got, tt.contentType)
			}
			if got := h.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
				t.Errorf("Cache-Control %q", got)
			}
			if got := h.Get("Content-Encoding"); got != tt.code {
				t.Errorf("Content-Encoding %q, want %q", got, tt.code)
			}
			if got := h.Get("Vary") == "Accept-Encoding"; got != tt.vary {
				t.Errorf("Vary %q", h.Get("Vary"))
			}
			if tt.method == "HEAD" && w.Body.Len() > 0 {
				t.Error("HEAD has a body")
			}
			if tt.method == "GET" && w.Body.Len() == 0 {
				t.Error("no body")
			}
		})
	}
}

func TestGzippedTwinsHoldTheSame(t *testing.T) {
	t.Parallel()
	for name, a := range built().byName {
		if a.gzip == nil {
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(a.gzip))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, a.body) {
			t.Errorf("%s: its twin differs (%v)", name, err)
		}
	}
}

// The budget of what is ours, as a browser loads it; MapLibre is counted apart.
func TestScriptsStayWithinTheirBudget(t *testing.T) {
	t.Parallel()
	sum := 0
	for _, name := range []string{"app.js", "map.js"} {
		sum += len(built().byName[strings.TrimPrefix(URL(name), prefix)].gzip)
	}
	if sum == 0 || sum > 110_000 {
		t.Errorf("%d bytes gzipped", sum)
	}
	if n := len(built().byName[strings.TrimPrefix(URL("basemap.json"), prefix)].gzip); n > 400_000 {
		t.Errorf("basemap: %d bytes gzipped", n)
	}
}

// Package static serves the scripts, style sheet, fonts and basemap of the pages, built
// from src into dist by npm run build and embedded here.
package static

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// prefix is where Handler is mounted.
const prefix = "/static/"

// An asset is one file under its hashed name.
type asset struct {
	contentType string
	body        []byte
	gzip        []byte // nil where the build made none
}

type assets struct {
	names  map[string]string // name in the sources to hashed name
	byName map[string]asset  // by hashed name
}

var contentTypes = map[string]string{
	".css":   "text/css; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".json":  "application/json",
	".svg":   "image/svg+xml",
	".txt":   "text/plain; charset=utf-8",
	".woff2": "font/woff2",
}

// built reads what is embedded, once. A broken build is a broken program.
var built = sync.OnceValue(func() assets {
	a, err := load(dist)
	if err != nil {
		panic(err)
	}
	return a
})

func load(files fs.FS) (assets, error) {
	a := assets{byName: map[string]asset{}}
	raw, err := fs.ReadFile(files, "dist/manifest.json")
	if err != nil {
		return a, fmt.Errorf("static: %w", err)
	}
	if err := json.Unmarshal(raw, &a.names); err != nil {
		return a, fmt.Errorf("static: manifest: %w", err)
	}
	for name, hashed := range a.names {
		contentType, ok := contentTypes[path.Ext(hashed)]
		if !ok {
			return a, fmt.Errorf("static: no content type for %s", name)
		}
		body, err := fs.ReadFile(files, "dist/"+hashed)
		if err != nil {
			return a, fmt.Errorf("static: %w", err)
		}
		packed, _ := fs.ReadFile(files, "dist/"+hashed+".gz")
		a.byName[hashed] = asset{contentType: contentType, body: body, gzip: packed}
	}
	return a, nil
}

// URL is the path of an asset by its name in the sources: "app.css" gives
// "/static/app-<hash>.css". It panics on a name that was not built, which is a
// mistake in a template and breaks its first test.
func URL(name string) string {
	hashed, ok := built().names[name]
	if !ok {
		panic(fmt.Sprintf("static: %q is not in dist; is it built?", name))
	}
	return prefix + hashed
}

// Handler serves GET and HEAD of /static/*: assets under their hashed names,
// which never change and so are cached for good, gzipped for those who take it.
// Anything else is 404. It panics on a broken build.
func Handler() http.Handler {
	built := built()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, under := strings.CutPrefix(r.URL.Path, prefix)
		a, ok := built.byName[name]
		if !under || !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		body := a.body
		if a.gzip != nil {
			h.Add("Vary", "Accept-Encoding")
			if acceptsGzip(r.Header) {
				h.Set("Content-Encoding", "gzip")
				body = a.gzip
			}
		}
		h.Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body) // the client has gone
		}
	})
}

// acceptsGzip reads Accept-Encoding (RFC 9110 §12.5.3): gzip, or a wildcard that
// stands for it, with a weight other than zero.
func acceptsGzip(h http.Header) bool {
	wildcard := false
	for _, item := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, params, _ := strings.Cut(item, ";")
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			return weight(params) > 0
		case "*":
			wildcard = weight(params) > 0
		}
	}
	return wildcard
}

func weight(params string) float64 {
	name, value, ok := strings.Cut(strings.TrimSpace(params), "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(name), "q") {
		return 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return 0
	}
	return q
}

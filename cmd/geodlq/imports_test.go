package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are our packages from the ground up: each may import those above it in
// this list, and no other of ours.
var layers = []struct {
	pkg  string
	uses []string
}{
	{"internal/dlq", nil},
	{"static", nil},
	{"migrations", nil},
	{"internal/geo", []string{"internal/dlq"}},
	{"internal/geo/gen", nil},
	{"internal/mvt", nil},
	{"internal/tally", nil},
	{"internal/localpg", nil},
	{"internal/payload", nil},
	{"internal/batch", nil},
	{"internal/store", []string{"internal/batch", "internal/dlq", "internal/mvt", "internal/payload", "internal/tally"}},
	{"internal/pgtest", []string{"internal/localpg", "internal/store", "migrations"}},
	{"internal/pipeline", []string{"internal/dlq", "internal/geo", "internal/store"}},
	{"internal/triage", []string{"internal/dlq", "internal/store"}},
	{"internal/spool", []string{"internal/dlq"}},
	{"internal/door", []string{"internal/dlq", "internal/payload", "internal/store", "internal/pipeline", "internal/spool"}},
	{"jobs", []string{"internal/dlq", "internal/payload", "internal/store", "internal/pipeline", "internal/triage"}},
	{"views", []string{"internal/dlq", "static"}},
	{"web", []string{"internal/dlq", "internal/payload", "internal/store", "internal/pipeline", "internal/door", "internal/triage", "static", "views"}},
	{"cmd/geodlq", []string{"internal/localpg", "internal/payload", "internal/store", "internal/spool", "internal/door", "internal/triage", "jobs", "migrations", "web", "internal/dlq"}},
}

// reserved are libraries that only some packages may touch.
var reserved = map[string][]string{
	"github.com/labstack/echo":    {"web"},
	"gocloud.dev":                 {"internal/payload"},
	"github.com/jackc/pgx":        {"internal/store", "jobs", "internal/localpg", "internal/pgtest", "migrations", "cmd/geodlq"},
	"github.com/riverqueue/river": {"jobs", "migrations"},
}

func TestImportsRunDownOnly(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "geodlq/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		checkImports(t, strings.TrimPrefix(p.ImportPath, "geodlq/"), p.Imports)
	}
}

func checkImports(t *testing.T, pkg string, imports []string) {
	i := slices.IndexFunc(layers, func(l struct {
		pkg  string
		uses []string
	}) bool {
		return l.pkg == pkg
	})
	if i < 0 {
		t.Errorf("%s stands in no layer", pkg)
		return
	}
	for _, imported := range imports {
		if ours, ok := strings.CutPrefix(imported, "geodlq/"); ok && !slices.Contains(layers[i].uses, ours) {
			t.Errorf("%s imports %s", pkg, ours)
		}
		for library, allowed := range reserved {
			if strings.HasPrefix(imported, library) && !slices.Contains(allowed, pkg) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

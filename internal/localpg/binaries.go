package localpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest PostgreSQL whose options and settings we use.
const oldestMajor = 14

// binaries are one installed server.
type binaries struct {
	dir     string
	major   int
	postgis bool
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries finds a server with PostGIS: the one pg_config names, else the
// newest of Debian's. major, where not 0, is the only one that will do, since a
// cluster is only read by the version that wrote it.
func findBinaries(ctx context.Context, major int) (binaries, error) {
	return choose(ctx, installed(ctx), major)
}

func choose(ctx context.Context, all []binaries, major int) (binaries, error) {
	lacking := 0
	for _, b := range all {
		if b.major < oldestMajor || (major != 0 && b.major != major) {
			continue
		}
		if b.postgis {
			return b, nil
		}
		lacking = max(lacking, b.major)
	}
	switch {
	case lacking != 0:
		return binaries{}, fmt.Errorf("%w: PostgreSQL %d is there without PostGIS; apt-get install postgresql-%d-postgis-3, or set DATABASE_URL", ErrNotInstalled, lacking, lacking)
	case major != 0:
		return binaries{}, fmt.Errorf("%w: the cluster was made by PostgreSQL %d, which is missing; apt-get install postgresql-%d postgresql-%d-postgis-3, or set DATABASE_URL", ErrNotInstalled, major, major, major)
	}
	packaged := "NN"
	if n := packagedMajor(ctx); n != 0 {
		packaged = strconv.Itoa(n)
	}
	return binaries{}, fmt.Errorf("%w (PostgreSQL %d or newer); apt-get install postgresql postgresql-%s-postgis-3, or set DATABASE_URL", ErrNotInstalled, oldestMajor, packaged)
}

// installed lists the servers of this machine, the preferred first.
func installed(ctx context.Context) []binaries {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int {
		return parseMajor(filepath.Base(filepath.Dir(b))) - parseMajor(filepath.Base(filepath.Dir(a)))
	})
	var found []binaries
	for _, dir := range append(dirs, debian...) {
		if b, ok := inspect(ctx, dir); ok {
			found = append(found, b)
		}
	}
	return found
}

// inspect tells what server lies in dir, if one does. libpq's pg_config names
// a directory that often holds none.
func inspect(ctx context.Context, dir string) (binaries, bool) {
	b := binaries{dir: dir}
	for _, name := range []string{"postgres", "initdb"} {
		info, err := os.Stat(b.path(name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return b, false
		}
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return b, false
	}
	b.major = parseMajor(string(out))
	share := filepath.Join("/usr/share/postgresql", strconv.Itoa(b.major))
	if out, err := exec.CommandContext(ctx, b.path("pg_config"), "--sharedir").Output(); err == nil {
		share = strings.TrimSpace(string(out))
	}
	b.postgis = exists(filepath.Join(share, "extension", "postgis.control"))
	return b, b.major != 0
}

var number = regexp.MustCompile(`\d+`)

// parseMajor reads the first number: of "15", and of "postgres (PostgreSQL) 15.8".
func parseMajor(s string) int {
	n, _ := strconv.Atoi(number.FindString(s))
	return n
}

// packagedMajor is the version Debian's package postgresql stands for, or 0.
func packagedMajor(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "postgresql").Output()
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(out), "Depends: postgresql-")
	first, _, _ := strings.Cut(after, "\n")
	return parseMajor(first)
}

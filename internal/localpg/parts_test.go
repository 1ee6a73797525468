package localpg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestChooseBinaries(t *testing.T) {
	t.Parallel()
	has := func(major int, postgis bool) binaries { return binaries{major: major, postgis: postgis} }
	for name, tc := range map[string]struct {
		all   []binaries
		major int
		want  int
		says  string
	}{
		"the first with PostGIS":            {all: []binaries{has(17, false), has(16, true), has(15, true)}, want: 16},
		"the version of the cluster":        {all: []binaries{has(16, true), has(15, true)}, major: 15, want: 15},
		"no PostGIS":                        {all: []binaries{has(15, false)}, says: "apt-get install postgresql-15-postgis-3, or set DATABASE_URL"},
		"cluster of a version that is gone": {all: []binaries{has(17, true)}, major: 15, says: "apt-get install postgresql-15 postgresql-15-postgis-3"},
		"too old":                           {all: []binaries{has(13, true)}, says: "apt-get install postgresql postgresql-"},
		"nothing":                           {says: "apt-get install postgresql postgresql-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := choose(t.Context(), tc.all, tc.major)
			if tc.want != 0 && (err != nil || got.major != tc.want) {
				t.Errorf("chose %d, %v; want %d", got.major, err, tc.want)
			}
			if tc.says != "" && (!errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("error %v does not say %q", err, tc.says)
			}
		})
	}
}

func TestParseMajor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"15\n": 15, "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": 15, "postgres (PostgreSQL) 18beta1": 18, "": 0, "x": 0,
	} {
		if got := parseMajor(text); got != want {
			t.Errorf("parseMajor(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestRenderConf(t *testing.T) {
	t.Parallel()
	conf, err := renderConf("/tmp/x", map[string]string{"FSYNC": "off", "search_path": `a'b\c`})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"fsync = 'off'", `search_path = 'a''b\\c'`, "unix_socket_directories = '/tmp/x'", "synchronous_commit = 'on'"} {
		if !strings.Contains(conf, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, conf)
		}
	}
	if _, err := renderConf("/tmp/x", map[string]string{"a = 1\nfsync": "off"}); err == nil {
		t.Error("a name that is no name was taken")
	}
}

func TestURLIsUnderstoodByPgx(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(connURL("a b", "/tmp/geodlq-0-12"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "/tmp/geodlq-0-12" || config.Database != "a b" || config.User != superuser || config.TLSConfig != nil {
		t.Errorf("parsed as %+v", config.Config)
	}
}

func TestSocketDirIsTheAccountsAlone(t *testing.T) {
	t.Parallel()
	self := account{name: "self", uid: os.Geteuid(), gid: os.Getegid()}
	parent := t.TempDir()
	for name, tc := range map[string]struct {
		prepare func(dir string) error
		refused bool
		asRoot  bool
	}{
		"new":            {prepare: func(string) error { return nil }},
		"there already":  {prepare: func(dir string) error { return os.Mkdir(dir, 0o700) }},
		"open to others": {prepare: func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) }, refused: true},
		"a link":         {prepare: func(dir string) error { return os.Symlink(parent, dir) }, refused: true},
		"a file":         {prepare: func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, refused: true},
		"of another": {prepare: func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345))
		}, refused: true, asRoot: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.asRoot && os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			dir := filepath.Join(parent, strings.ReplaceAll(name, " ", "-"))
			if err := tc.prepare(dir); err != nil {
				t.Fatal(err)
			}
			if err := makeSocketDir(dir, self); (err != nil) != tc.refused {
				t.Errorf("makeSocketDir: %v, want refused %v", err, tc.refused)
			}
		})
	}
}

func TestSocketPathIsShort(t *testing.T) {
	t.Parallel()
	dir := socketDir("/"+strings.Repeat("long/", 100), account{uid: 1<<32 - 2})
	if path := filepath.Join(dir, ".s.PGSQL."+port); len(path) > 107 {
		t.Errorf("%s has %d bytes", path, len(path))
	}
}

func TestPointerOutsideOfItsRootIsRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"/etc", movedRoot + "/../x", movedRoot + "/a/b", movedRoot, ""} {
		dir := t.TempDir()
		if err := os.WriteFile(pointerPath(dir), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if data, err := currentPlace(dir); err == nil {
			t.Errorf("%q was taken for %s", content, data)
		}
	}
}

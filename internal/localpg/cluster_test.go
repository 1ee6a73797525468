package localpg

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var quick = map[string]string{"fsync": "off", "shared_buffers": "16MB"}

// newDir is a data directory that the server's account reaches, which
// t.TempDir is not for root: its parent is root's alone.
func newDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "localpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "it's a \\ dir", strings.Repeat("long", 30), ".geodlq")
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Errorf("Remove: %v", err)
		}
		os.RemoveAll(parent)
	})
	return dir
}

func start(t *testing.T, dir string) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), Options{Dir: dir, Settings: quick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// query runs sql in the database of c and returns the one text it selects.
func query(t *testing.T, c *Cluster, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestStartAndClose(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := start(t, dir)
	for sql, want := range map[string]string{
		"SELECT current_database()": "geodlq",
		"SHOW listen_addresses":     "",
		"SHOW synchronous_commit":   "on",
		"SHOW fsync":                "off", // ours to override
		"SHOW data_checksums":       "on",
		"SHOW server_encoding":      "UTF8",
		"SHOW log_min_messages":     "log",
		"SELECT '' FROM pg_available_extensions WHERE name = 'postgis'": "",
	} {
		if got := query(t, c, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	pid := c.server.postmaster()
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("server is in process group %d, %v; want its own, %d", group, err, pid)
	}
	stop(t, c)
	stop(t, c)
	if c.server.alive() || exists(c.server.socketDir) {
		t.Error("Close left a server or its socket")
	}
	for _, process := range childStates(t) {
		if strings.HasPrefix(process, "Z") {
			t.Errorf("a zombie child: %s", process)
		}
	}
}

func TestMembersOfOneProcessShareAServerAndTheLastStopsIt(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := start(t, dir)
	pid := first.server.postmaster()
	second := start(t, dir)
	if got := second.server.postmaster(); got != pid {
		t.Fatalf("the second runs its own server, %d beside %d", got, pid)
	}
	if err := Remove(t.Context(), dir); !errors.Is(err, ErrInUse) {
		t.Fatalf("Remove of a cluster in use: %v", err)
	}
	stop(t, first)
	query(t, second, "SELECT ''")
	stop(t, second)
	if second.server.alive() {
		t.Error("the last one out left the server running")
	}
}

func TestCloseCutsOpenConnections(t *testing.T) {
	t.Parallel()
	c := start(t, newDir(t))
	conn, err := pgx.Connect(t.Context(), c.URLFor("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	stop(t, c)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the server")
	}
}

func TestInterruptedStartsLeaveNothingInTheWay(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	leftover := homePlace(dir) + ".init-1"
	if err := os.MkdirAll(filepath.Join(leftover, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := start(t, dir)
	if exists(leftover) {
		t.Error("leftovers of an interrupted initdb are still there")
	}
	stop(t, c)

	conf := filepath.Join(c.server.data, "postgresql.conf")
	if err := os.WriteFile(conf, []byte("listen_addr"), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := c.server.pidPath()
	for _, stale := range []string{"", "garbage", strconv.Itoa(os.Getpid()) + "\n" + c.server.data + "\n", someAccountProcess(t, c.server.account)} {
		if err := os.WriteFile(pid, []byte(stale), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(c.server.socketDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.server.socketDir, ".s.PGSQL.5432.lock"), []byte(stale), 0o600); err != nil {
			t.Fatal(err)
		}
		c = start(t, dir)
		query(t, c, "SELECT ''")
		stop(t, c)
	}
}

// someAccountProcess runs something else as the account, whose pid PostgreSQL
// alone would take for a running server's.
func someAccountProcess(t *testing.T, a account) string {
	t.Helper()
	cmd := a.command(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid) + "\n"
}

func TestStartSaysWhyTheServerDied(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: newDir(t), Settings: map[string]string{"fsync": "off", "max_wal_size": "a lot"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "max_wal_size"`) {
		t.Errorf("error does not hold the server's reason: %v", err)
	}
}

func TestStartThatIsCancelledLeavesNoServer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	stop(t, start(t, dir))
	for _, after := range []time.Duration{0, 30, 60, 90, 120, 200} {
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
		c, err := Start(ctx, Options{Dir: dir, Settings: quick})
		cancel()
		if err == nil {
			stop(t, c)
		}
		if data := homePlace(dir); exists(data) {
			a, err := accountFor(data)
			if err != nil {
				t.Fatal(err)
			}
			if newServer(data, a, slog.New(slog.DiscardHandler)).alive() {
				t.Errorf("cancelled after %v ms, a server runs without members", int(after))
			}
		}
	}
}

func TestServerThatLostItsSocketIsStartedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a socket that does not come")
	}
	t.Parallel()
	dir := newDir(t)
	first := start(t, dir)
	if err := os.RemoveAll(first.server.socketDir); err != nil {
		t.Fatal(err)
	}
	query(t, start(t, dir), "SELECT ''")
}

func TestLogHoldsNoPayload(t *testing.T) {
	t.Parallel()
	c := start(t, newDir(t))
	conn, err := pgx.Connect(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{"SELECT 'secret'::int", "SELECT secret", "DO $$ BEGIN RAISE WARNING 'secret'; END $$"} {
		_, _ = conn.Exec(t.Context(), sql)
	}
	_, _ = conn.Exec(t.Context(), "SELECT $1::text::int", "secret")
	stop(t, c)
	dir := filepath.Join(c.server.data, "log")
	logs, err := os.ReadDir(dir)
	if err != nil || len(logs) < 2 {
		t.Fatalf("no logs: %v, %v", logs, err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(filepath.Join(dir, log.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("secret")) {
			t.Errorf("%s holds a payload:\n%s", log.Name(), content)
		}
	}
}

func TestRootMovesAClusterThatItsServerCannotReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	t.Parallel()
	dir := newDir(t)
	// A cluster from when it could be reached comes along.
	stop(t, withTable(t, start(t, dir)))
	parent := filepath.Dir(filepath.Dir(filepath.Dir(dir)))
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	var data string
	for range 2 {
		var log bytes.Buffer
		c, err := Start(t.Context(), Options{Dir: dir, Settings: quick, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if got := filepath.Dir(c.server.data); got != movedRoot {
			t.Errorf("cluster lies under %s, want %s", got, movedRoot)
		}
		if !strings.Contains(log.String(), c.server.data) {
			t.Errorf("log does not say where the cluster lies:\n%s", &log)
		}
		if got := query(t, c, "SELECT word FROM kept"); got != "here" {
			t.Errorf("the moved cluster holds %q", got)
		}
		stop(t, c)
		data = c.server.data
	}
	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(data + "*"); len(left) > 0 {
		t.Errorf("Remove left %v", left)
	}
}

func TestRootMakesAClusterWhereItsServerCanReachIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	t.Parallel()
	dir := t.TempDir()
	c := start(t, dir)
	if got := filepath.Dir(c.server.data); got != movedRoot {
		t.Errorf("cluster lies under %s, want %s", got, movedRoot)
	}
	stop(t, c)
	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("Remove left %v", entries)
	}
}

func withTable(t *testing.T, c *Cluster) *Cluster {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 'here' AS word"); err != nil {
		t.Fatal(err)
	}
	return c
}

// childStates lists this process's children as "state name".
func childStates(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, stat := range stats {
		content, _ := os.ReadFile(stat)
		before, after, _ := strings.Cut(string(content), ") ")
		fields := strings.Fields(after)
		// Other tests' children may just have ended; the server's may not.
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && strings.HasSuffix(before, "(postgres") {
			children = append(children, fields[0]+" "+before)
		}
	}
	slices.Sort(children)
	return children
}

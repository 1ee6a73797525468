package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// standby is a streaming replica of a test's PostgreSQL.
type standby struct {
	t       testing.TB
	of      *postgres
	dir     string // its data, and its socket
	bin     string
	options []string
	server  *exec.Cmd
}

// startReplica makes a replica and starts it, with settings over those of a replica
// that its readers do not disturb.
func (p *postgres) startReplica(settings ...string) *standby {
	p.t.Helper()
	dir, err := os.MkdirTemp("", "geodlq-replica-")
	if err != nil {
		p.t.Fatal(err)
	}
	r := &standby{t: p.t, of: p, dir: dir, bin: p.binaries()}
	for _, setting := range append([]string{"logging_collector=off", "cluster_name=replica", "hot_standby_feedback=on", "wal_receiver_status_interval=1s"}, settings...) {
		r.options = append(r.options, "-c", setting)
	}
	p.t.Cleanup(func() {
		r.kill()
		_ = os.RemoveAll(dir)
	})
	if err := os.Chown(dir, int(r.account().Uid), int(r.account().Gid)); err != nil {
		p.t.Fatal(err)
	}
	backup := r.command("pg_basebackup", "-d", p.cluster.URL(), "-D", dir, "-R", "-c", "fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		p.t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	r.start()
	return r
}

// binaries is where the server's programs are.
func (p *postgres) binaries() string {
	p.t.Helper()
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.pid()), "exe"))
	if err != nil {
		p.t.Fatal(err)
	}
	return filepath.Dir(program)
}

// account is who runs the primary: PostgreSQL does not run as root.
func (r *standby) account() *syscall.Credential {
	r.t.Helper()
	info, err := os.Stat(r.of.data)
	if err != nil {
		r.t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	return &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
}

func (r *standby) command(name string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.bin, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if account := r.account(); int(account.Uid) != os.Geteuid() {
		cmd.SysProcAttr.Credential = account
	}
	return cmd
}

// start starts it and waits until it can be read.
func (r *standby) start() {
	r.t.Helper()
	var out bytes.Buffer
	r.server = r.command("postgres", append([]string{"-D", r.dir, "-k", r.dir}, r.options...)...)
	r.server.Stderr = &out
	if err := r.server.Start(); err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), r.url())
		if err == nil {
			conn.Close(context.Background())
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the replica does not start: %v\n%s", err, out.String())
		}
	}
}

func (r *standby) url() string { return r.urlFor("geodlq") }

// urlFor is the primary's for a database, at the replica's socket.
func (r *standby) urlFor(database string) string {
	u, err := url.Parse(r.of.cluster.URLFor(database))
	if err != nil {
		r.t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", r.dir)
	u.RawQuery = q.Encode()
	return u.String()
}

// signal signals all processes of the server.
func (r *standby) signal(signal syscall.Signal) { signalServer(r.server.Process.Pid, signal) }

// signalServer signals all processes of a PostgreSQL, which lead groups of their own,
// and then itself.
func signalServer(server int, signal syscall.Signal) {
	if signal == syscall.SIGSTOP {
		_ = syscall.Kill(server, signal) // it starts no others meanwhile
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		var pid, parent int
		var name, state string
		if _, err := fmt.Sscan(string(text), &pid, &name, &state, &parent); err == nil && parent == server {
			_ = syscall.Kill(pid, signal)
		}
	}
	_ = syscall.Kill(server, signal)
}

// kill ends it as a crash of its machine would.
func (r *standby) kill() {
	if r.server != nil {
		_ = r.server.Process.Signal(syscall.SIGSTOP) // it starts no others
		r.signal(syscall.SIGKILL)
		_ = r.server.Wait()
		r.server = nil
	}
}

// exec runs a statement there.
func (r *standby) exec(sql string) {
	r.t.Helper()
	conn, err := pgx.Connect(context.Background(), r.url())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// pause lets the replica fall behind, resume lets it come up again.
func (r *standby) pause()  { r.t.Helper(); r.exec("select pg_wal_replay_pause()") }
func (r *standby) resume() { r.t.Helper(); r.exec("select pg_wal_replay_resume()") }

// pair is a primary with its replica, which tests share one after the other.
type pair struct {
	primary *postgres
	replica *standby
	serial  int
}

// TestReplica reads over a real replica, which is paused, killed and frozen. Each test
// has a database of its own in the one pair.
func TestReplica(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	pg.migrate()
	p := &pair{primary: pg, replica: pg.startReplica()}
	t.Run("letters are read there, and its lag is shown", p.testReads)
	t.Run("one too far behind is passed until it is back", p.testBehind)
	t.Run("an idle primary makes no lag", p.testIdle)
	t.Run("one that dies or hangs fails no read", p.testDies)
	t.Run("operators see what they did", p.testOwnWrites)
	t.Run("its tiles and the primary's are told apart", p.testTiles)
	t.Run("as many other letters are no equal tile", p.testOtherOrder)
	t.Run("its lists are whole though the primary has folded", p.testFolded)
	t.Run("letters are readable while the primary is away", p.testPrimaryAway)
}

// start is the replica with a server that reads on it, over an empty database.
func (p *pair) start(t *testing.T, env map[string]string) (*standby, *server) {
	t.Helper()
	p.primary.t, p.replica.t = t, t
	p.serial++
	name := fmt.Sprintf("d%d", p.serial)
	p.primary.query(func(conn *pgx.Conn) error {
		_, err := conn.Exec(context.Background(), "create database "+name+" template geodlq")
		return err
	})
	all := map[string]string{"DATABASE_READ_URL": p.replica.urlFor(name), "GEODLQ_READ_LAG_MAX": "1h"}
	maps.Copy(all, env)
	s := startCommand(t, "serve", p.primary.cluster.URLFor(name), all)
	t.Cleanup(p.replica.resume)
	s.awaitReplica(true)
	return p.replica, s
}

// migrate makes the tables, so that a replica has them from its beginning.
func (p *postgres) migrate() {
	p.t.Helper()
	getenv := func(name string) string { return map[string]string{"DATABASE_URL": p.cluster.URL()}[name] }
	if err := run(context.Background(), []string{"migrate"}, getenv, io.Discard, io.Discard); err != nil {
		p.t.Fatal(err)
	}
}

func (s *server) replica() map[string]any {
	s.t.Helper()
	replica, _ := s.get("/readyz").json(s.t)["replica"].(map[string]any)
	return replica
}

// awaitReplica waits until the replica is in use, or is not.
func (s *server) awaitReplica(used bool) {
	s.t.Helper()
	s.eventually("the replica to be in use: "+strconv.FormatBool(used), func() bool { return s.replica()["in_use"] == used })
}

const everyStatus = "status=pending&status=redriving&status=quarantined&status=replayed&status=abandoned"

// total is how many letters the statistics count, under the header of a request.
func (s *server) total(header map[string]string) float64 {
	s.t.Helper()
	a := s.do("GET", "/v1/stats?"+everyStatus, header, nil)
	if a.status != 200 {
		s.t.Fatalf("stats: %d %s", a.status, a.body)
	}
	return a.json(s.t)["total"].(float64)
}

// tileReport reports the failure of a tile under a key of its own, and gives its letter.
func (s *server) tileReport(key string, x int) any {
	s.t.Helper()
	a := s.report(map[string]any{"work_key": key, "class": "oom", "tile": map[string]int{"z": 9, "x": x, "y": 167}}, "")
	if a.status != 201 {
		s.t.Fatalf("report: %d %s", a.status, a.body)
	}
	return a.json(s.t)["letter_id"]
}

func (p *pair) testReads(t *testing.T) {
	r, s := p.start(t, nil)
	began := time.Now()
	s.tileReport("first", 274)
	s.eventually("the first letter to be counted", func() bool { return s.total(nil) == 1 })
	if took := time.Since(began); took > time.Second {
		t.Errorf("a letter was counted after %v", took)
	}
	r.pause()
	second := s.tileReport("second", 275)
	if n := s.total(nil); n != 1 {
		t.Errorf("the statistics are not the replica's: %v letters", n)
	}
	if a := s.get("/v1/dead-letters").json(t); a["numberMatched"] != 1.0 || a["numberReturned"] != 1.0 {
		t.Errorf("the list is not the replica's: %v of %v", a["numberReturned"], a["numberMatched"])
	}
	if n := countInTile(t, s.get("/tiles/0/0/0.mvt").body); n != 1 {
		t.Errorf("the tile is not the replica's: %v letters", n)
	}
	if a := s.get("/export.geojson"); a.status != 200 || a.json(t)["numberReturned"] != 1.0 {
		t.Errorf("the export is not the replica's: %s", a.body)
	}
	if n := strings.Count(string(s.get("/export.csv").body), "\r\n"); n != 2 {
		t.Errorf("the CSV is not the replica's: %d lines", n)
	}
	// What is acted on, and the depth of the queue, are the primary's.
	if got := s.statusOf(second); got != "pending" {
		t.Error(got)
	}
	s.eventually("the lag to be shown", func() bool {
		lag, _ := s.replica()["lag_seconds"].(float64)
		return lag > 1
	})
	readContract(t).want(s, 200, "getReady", call{})
	page := string(s.get("/").body)
	for _, want := range []string{`>2 <small>pending`, "1\u00a0open letter", "Read from a replica, ", "\u00a0s behind"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	r.resume()
	s.eventually("the second letter to be counted", func() bool { return s.total(nil) == 2 })
	s.eventually("the lag to be gone", func() bool { return s.replica()["lag_seconds"] == 0.0 })
	if page := string(s.get("/").body); !strings.Contains(page, "Read from a replica, less than 1") {
		t.Error("the page does not say that the lag is gone")
	}
}

func (p *pair) testBehind(t *testing.T) {
	r, s := p.start(t, map[string]string{"GEODLQ_READ_LAG_MAX": "2s"})
	onPrimary := func() int { return strings.Count(s.log.String(), "are read on the primary") }
	before := onPrimary() // until the database was there on the replica too
	r.pause()
	s.tileReport("first", 274)
	if n := s.total(nil); n != 0 {
		t.Fatalf("within the limit the replica is read, which has no letter; %v", n)
	}
	s.awaitReplica(false)
	if n := s.total(nil); n != 1 {
		t.Errorf("past the limit the primary is read, which has a letter; %v", n)
	}
	if page := string(s.get("/").body); !strings.Contains(page, "Read from the primary: the replica is more than 2s behind, by ") {
		t.Error("the page does not say why the primary is read")
	}
	for range 50 {
		s.total(nil)
	}
	if n := onPrimary() - before; n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	r.resume()
	s.awaitReplica(true)
	if n := s.total(nil); n != 1 {
		t.Error(n)
	}
}

// An idle primary makes no lag, however long ago it last wrote.
func (p *pair) testIdle(t *testing.T) {
	_, s := p.start(t, map[string]string{"GEODLQ_READ_LAG_MAX": "1s"})
	for range 40 {
		if got := s.replica(); got["in_use"] != true || got["lag_seconds"].(float64) > 0.5 {
			t.Fatalf("%v\n%s", got, s.log.tail(1000))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// reader reads for as long as it is let, and counts the answers by status.
type reader struct {
	stop     chan struct{}
	reading  sync.WaitGroup
	mu       sync.Mutex
	statuses map[int]int
	longest  time.Duration
	slow     int // longer than frozen
}

var everyRead = []string{"/", "/v1/dead-letters", "/v1/stats", "/tiles/0/0/0.mvt", "/tiles/12/2196/1342.mvt", "/tiles.json", "/export.csv", "/export.geojson", "/v1/dead-letters?q=killed"}

func (s *server) startReading(readers int) *reader {
	r := &reader{stop: make(chan struct{}), statuses: map[int]int{}}
	for i := range readers {
		r.reading.Go(func() {
			for n := i; ; n++ {
				select {
				case <-r.stop:
					return
				default:
				}
				began := time.Now()
				status := 0
				if response, err := http.Get(s.url + everyRead[n%len(everyRead)]); err == nil {
					if _, err = io.Copy(io.Discard, response.Body); err == nil {
						status = response.StatusCode
					}
					response.Body.Close()
				}
				r.mu.Lock()
				r.statuses[status]++
				took := time.Since(began)
				r.longest = max(r.longest, took)
				if took > frozen {
					r.slow++
				}
				r.mu.Unlock()
			}
		})
	}
	return r
}

// end stops the readers and checks that each was answered.
func (r *reader) end(t testing.TB) {
	t.Helper()
	close(r.stop)
	r.reading.Wait()
	for status, n := range r.statuses {
		if status != http.StatusOK {
			t.Errorf("%d reads ended with status %d", n, status)
		}
	}
	t.Logf("%v, the longest took %v, %d longer than %v", r.statuses, r.longest, r.slow, frozen)
}

// frozen is for how long a replica hangs after it was found out.
const frozen = 6 * time.Second

func (p *pair) testDies(t *testing.T) {
	r, s := p.start(t, nil)
	for x := range 20 {
		s.tileReport(fmt.Sprintf("tile-%d", x), 270+x)
	}
	const readers = 8
	reads := s.startReading(readers)
	for range 2 {
		time.Sleep(500 * time.Millisecond)
		r.kill()
		s.awaitReplica(false)
		if reason := s.replica()["reason"]; reason != "can't be reached" {
			t.Errorf("reason %v", reason)
		}
		time.Sleep(500 * time.Millisecond)
		r.start()
		s.awaitReplica(true)
	}
	r.signal(syscall.SIGSTOP)
	s.awaitReplica(false)
	if reason := s.replica()["reason"]; reason != "does not answer" {
		t.Errorf("reason %v", reason)
	}
	time.Sleep(frozen)
	r.signal(syscall.SIGCONT)
	s.awaitReplica(true)
	reads.end(t)
	if reads.slow > 0 {
		t.Errorf("%d reads waited until it went on, the longest for %v", reads.slow, reads.longest)
	}
	if n := strings.Count(s.log.String(), "are read on the primary"); n > 10 { // of thousands of reads
		t.Errorf("it was logged %d times", n)
	}
}

func TestAReadThatRecoveryCancelsIsDoneOnThePrimary(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	pg.migrate()
	r := pg.startReplica("hot_standby_feedback=off", "max_standby_streaming_delay=0")
	s := startCommand(t, "serve", pg.cluster.URL(), map[string]string{"DATABASE_READ_URL": r.url(), "GEODLQ_READ_LAG_MAX": "1h"})
	s.awaitReplica(true)
	for x := range 20 {
		s.tileReport(fmt.Sprintf("tile-%d", x), 270+x)
	}
	const readers = 8
	reads := s.startReading(readers)
	s.eventually("recovery to cancel a read", func() bool {
		s.exec("vacuum full dead_letters")
		return strings.Contains(s.log.String(), "a read failed on the replica and was done on the primary")
	})
	reads.end(t)
	if s.replica()["in_use"] != true {
		t.Error("a conflict with recovery took the replica out of use")
	}
}

// form posts a form as a browser does, and gives the cookie that came back, as the
// header of its next request.
func (s *server) form(path, body string) map[string]string {
	s.t.Helper()
	a := s.do("POST", path, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, []byte(body))
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	if a.status != http.StatusSeeOther || cookie == "" {
		s.t.Fatalf("%s: %d, cookie %q", path, a.status, cookie)
	}
	return map[string]string{"Cookie": cookie, "Accept": "text/html"}
}

func (p *pair) testOwnWrites(t *testing.T) {
	r, s := p.start(t, nil)
	id := s.tileReport("first", 274)
	s.eventually("the letter to be counted", func() bool { return s.total(nil) == 1 })
	r.pause()
	cookie := s.form(fmt.Sprintf("/letters/%.0f/quarantine", id), "reason=")
	quarantined := func(header map[string]string) float64 {
		return s.do("GET", "/v1/dead-letters?status=quarantined", header, nil).json(t)["numberMatched"].(float64)
	}
	if quarantined(nil) != 0 {
		t.Error("somebody else is not answered by the replica")
	}
	if quarantined(cookie) != 1 {
		t.Error("who quarantined the letter does not see it so")
	}
	page := string(s.do("GET", "/?status=quarantined", cookie, nil).body)
	if !strings.Contains(page, "1\u00a0letter matches") {
		t.Error("the page does not show it")
	}
	r.resume()
	s.eventually("everybody to see it", func() bool { return quarantined(nil) == 1 })
	time.Sleep(2 * lookedAt)
	r.pause()
	s.tileReport("second", 275)
	if n := s.total(cookie); n != 1 {
		t.Errorf("the replica has what he did, and is not read: %v letters", n)
	}
}

// lookedAt is within what time the replica is looked at.
const lookedAt = time.Second

func (p *pair) testTiles(t *testing.T) {
	r, s := p.start(t, nil)
	id := s.tileReport("first", 274)
	s.eventually("the letter to be counted", func() bool { return s.total(nil) == 1 })
	r.pause()
	s.tileReport("second", 275)
	own := s.form(fmt.Sprintf("/letters/%.0f/quarantine", id), "reason=")
	tile := func(header map[string]string, etag string) (int, float64, string) {
		header = maps.Clone(header)
		if header == nil {
			header = map[string]string{}
		}
		if etag != "" {
			header["If-None-Match"] = etag
		}
		a := s.do("GET", "/tiles/0/0/0.mvt", header, nil)
		return a.status, countInTile(t, a.body), a.header.Get("ETag")
	}
	want := func(what string, header map[string]string, etag string, status int, count float64) string {
		t.Helper()
		gotStatus, gotCount, tag := tile(header, etag)
		if gotStatus != status || gotCount != count {
			t.Errorf("%s: %d with %v letters, want %d with %v", what, gotStatus, gotCount, status, count)
		}
		return tag
	}
	old := want("the replica's", nil, "", 200, 1)
	fresh := want("the primary's", own, "", 200, 2)
	want("the replica's, kept beside the primary's", nil, "", 200, 1)
	want("the primary's, kept beside the replica's", own, "", 200, 2)
	want("the replica's again", nil, old, 304, 0)
	want("the primary's again", own, fresh, 304, 0)
	want("the primary's for who has the replica's", own, old, 200, 2)
	want("the replica's for who has the primary's", nil, fresh, 200, 1)
}

// Commits become visible on the primary once they are done, which may be in another
// order than the replica replays them in: as many letters were written on either, but
// not the same.
func (p *pair) testOtherOrder(t *testing.T) {
	r, s := p.start(t, nil)
	release := s.holdFold()
	// A standby that nobody is: commits wait for it.
	p.primary.configure("alter system set synchronous_standby_names = 'nobody'")
	defer p.primary.configure("alter system reset synchronous_standby_names")
	insert := func(key string, anchor string, wait string) error {
		conn, err := pgx.Connect(context.Background(), s.env["DATABASE_URL"])
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), fmt.Sprintf(`set synchronous_commit = %s;
			insert into dead_letters (work_key, kind, source, stage, class, error, fingerprint, anchor, located_by)
			values ('%s', 'event', 'default', 'validate', 'invalid_geometry', 'e', 'g', ST_GeomFromText('%s', 4326), 'geometry')`, wait, key, anchor))
		return err
	}
	waiting := make(chan error, 1)
	go func() { waiting <- insert("replayed", "POINT(10 50)", "on") }()
	s.eventually("the replica to have the first", func() bool { return s.total(nil) == 1 })
	time.Sleep(2 * lookedAt)
	r.pause()
	if err := insert("visible", "POINT(-100 -40)", "off"); err != nil {
		t.Fatal(err)
	}
	past := map[string]string{"Cookie": "geodlq-wrote=9223372036854775807"}
	onReplica := s.do("GET", "/tiles/0/0/0.mvt", nil, nil)
	onPrimary := s.do("GET", "/tiles/0/0/0.mvt", past, nil)
	if countInTile(t, onReplica.body) != 1 || countInTile(t, onPrimary.body) != 1 || bytes.Equal(onReplica.body, onPrimary.body) {
		t.Fatalf("the tiles are not one letter each, another one: %q %q", onReplica.body, onPrimary.body)
	}
	for _, c := range []struct{ header, etag map[string]string }{
		{nil, map[string]string{"If-None-Match": onPrimary.header.Get("ETag")}},
		{past, map[string]string{"If-None-Match": onReplica.header.Get("ETag")}},
	} {
		header := maps.Clone(c.etag)
		maps.Copy(header, c.header)
		if a := s.do("GET", "/tiles/0/0/0.mvt", header, nil); a.status != 200 {
			t.Errorf("the other server's ETag is taken for one's own: %d", a.status)
		}
	}
	p.primary.configure("alter system reset synchronous_standby_names")
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	release()
}

// configure changes a setting of the server's.
func (p *postgres) configure(sql string) {
	p.t.Helper()
	p.query(func(conn *pgx.Conn) error {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			return err
		}
		_, err := conn.Exec(context.Background(), "select pg_reload_conf()")
		return err
	})
}

// holdFold keeps the counts from being folded.
func (s *server) holdFold() (release func()) {
	s.t.Helper()
	tx, err := s.db.Begin(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), "lock table letter_folds in exclusive mode"); err != nil {
		s.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	s.t.Cleanup(release)
	return release
}

// What a process learnt of names on the primary must not count twice on a replica that
// has them in its log only.
func (p *pair) testFolded(t *testing.T) {
	r, s := p.start(t, nil)
	release := s.holdFold()
	for x := range 4 {
		s.tileReport(fmt.Sprintf("tile-%d", x), 270+x)
	}
	s.eventually("the replica to have them", func() bool { return s.total(nil) == 4 })
	time.Sleep(2 * lookedAt)
	r.pause()
	release()
	s.eventually("the primary to fold", func() bool { return s.count("select count(*) from facets") == 1 })
	past := map[string]string{"Cookie": "geodlq-wrote=9223372036854775807"}
	for _, header := range []map[string]string{past, nil} {
		list := s.do("GET", "/v1/dead-letters?limit=2", header, nil).json(t)
		if links := list["links"].([]any); list["numberReturned"] != 2.0 || list["numberMatched"] != 4.0 || len(links) != 2 {
			t.Errorf("%v of %v, %d links", list["numberReturned"], list["numberMatched"], len(links))
		}
	}
	if s.count("select count(*) from letter_deltas") != 0 || s.replica()["lag_seconds"] == 0.0 && s.replica()["in_use"] != true {
		t.Error("the replica was not behind a fold")
	}
}

func TestAReplicaThatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	pg, other := startPostgres(t), startPostgres(t)
	stranger := other.startReplica()
	nowhere := strings.Replace(stranger.url(), "geodlq-replica-", "geodlq-nowhere-", 1)
	for _, c := range []struct{ what, url, reason string }{
		{"a replica of another cluster", stranger.url(), "belongs to another cluster than the primary"},
		{"the primary", pg.cluster.URL(), "is not a streaming replica"},
		{"another database", strings.Replace(pg.cluster.URL(), "/geodlq?", "/postgres?", 1), "shows another database than the primary"},
		{"nothing", nowhere, "can't be reached"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := startCommand(t, "serve", pg.cluster.URL(), map[string]string{"DATABASE_READ_URL": c.url})
			s.eventually("it to be refused", func() bool { return s.replica()["reason"] == c.reason })
			s.total(nil)
			time.Sleep(2 * lookedAt)
			if n := strings.Count(s.log.String(), c.reason); n != 1 {
				t.Errorf("it was refused %d times in the log\n%s", n, s.log.tail(2000))
			}
		})
	}
}

func TestAReplicaWithoutOurTablesIsReadOnceItHasThem(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	r := pg.startReplica()
	r.pause()
	s := startCommand(t, "serve", pg.cluster.URL(), map[string]string{"DATABASE_READ_URL": r.url(), "GEODLQ_READ_LAG_MAX": "1h"})
	s.eventually("the replica to be refused", func() bool {
		reason, _ := s.replica()["reason"].(string)
		return strings.HasPrefix(reason, "has version 0 of the tables")
	})
	s.tileReport("first", 274)
	if n := s.total(nil); n != 1 {
		t.Error(n)
	}
	r.resume()
	s.awaitReplica(true)
}

func (p *pair) testPrimaryAway(t *testing.T) {
	_, s := p.start(t, nil)
	id := s.tileReport("first", 274)
	s.eventually("the letter to be counted", func() bool { return s.total(nil) == 1 })
	p.primary.stop(immediate)
	html := map[string]string{"Accept": "text/html"}
	for range 3 {
		page := s.do("GET", "/", html, nil)
		for _, want := range []string{"The database can&#39;t be reached since", "Letters are shown from the replica, as of", "1\u00a0open letter", "tile 9/274/167"} {
			if page.status != 200 || !strings.Contains(string(page.body), want) {
				t.Errorf("%d, without %q\n%s", page.status, want, s.log.tail(1000))
			}
		}
		time.Sleep(lookedAt)
	}
	for _, path := range append(everyRead, fmt.Sprintf("/letters/%.0f", id), fmt.Sprintf("/?letter=%.0f", id), fmt.Sprintf("/v1/dead-letters/%.0f/history", id), "/ledger") {
		if a := s.do("GET", path, html, nil); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.act(id, "quarantine"); a.status != 503 {
		t.Errorf("quarantine: %d", a.status)
	}
	if a := s.post("while-away", berlin); a.status != 202 || a.json(t)["spooled"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	p.primary.start()
	s.eventually("the door to notice", func() bool { return s.get("/readyz").json(t)["status"] == "ready" })
	s.awaitReplica(true)
	if page := string(s.do("GET", "/", html, nil).body); strings.Contains(page, "as of") || !strings.Contains(page, "Read from a replica") {
		t.Error("the page still says that the database is away")
	}
	s.settle("while-away")
}

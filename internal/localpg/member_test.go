package localpg

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// memberDir makes this test binary a member of the cluster in that directory,
// and nothing else.
const memberDir = "LOCALPG_TEST_MEMBER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(memberDir); dir != "" {
		os.Exit(beMember(dir))
	}
	os.Exit(m.Run())
}

// beMember starts or joins, says so with the server's pid, and leaves when
// standard input ends.
func beMember(dir string) int {
	c, err := Start(context.Background(), Options{Dir: dir, Settings: quick})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("up", c.server.postmaster())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := c.Close(); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// member is another process that uses the cluster.
type member struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

func newMember(t *testing.T, dir string) *member {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberDir+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &member{cmd, stdin, bufio.NewReader(stdout)}
	t.Cleanup(m.kill)
	return m
}

// pid waits until the member is up and returns its server's pid.
func (m *member) pid(t *testing.T) int {
	t.Helper()
	line, err := m.stdout.ReadString('\n')
	pid, ok := strings.CutPrefix(strings.TrimSpace(line), "up ")
	n, _ := strconv.Atoi(pid)
	if !ok || n == 0 {
		t.Fatalf("member is not up: %q, %v", line, err)
	}
	return n
}

func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stdin.Close()
	rest, _ := io.ReadAll(m.stdout)
	if err := m.cmd.Wait(); err != nil {
		t.Fatalf("member: %v: %s", err, rest)
	}
}

// kill returns once the member's output has ended: no server holds it open.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, m.stdout)
	_ = m.cmd.Wait()
}

func TestMembersThatAreKilledLeaveTheServerToTheRest(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	killed, last := newMember(t, dir), newMember(t, dir)
	pid := killed.pid(t)
	if got := last.pid(t); got != pid {
		t.Fatalf("two servers, %d and %d", got, pid)
	}
	killed.kill()
	if !running(t, dir) {
		t.Fatal("the server died with one member of two")
	}
	last.leave(t)
	if running(t, dir) {
		t.Fatal("the last member did not stop the server of a killed one")
	}
}

func TestServerWithoutMembersIsJoinedAndStopped(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	a, b := newMember(t, dir), newMember(t, dir)
	pid := a.pid(t)
	b.pid(t)
	a.kill()
	b.kill()
	if !running(t, dir) {
		t.Fatal("the server died with its members")
	}
	c := start(t, dir)
	if got := c.server.postmaster(); got != pid {
		t.Errorf("joined server %d, want %d", got, pid)
	}
	stop(t, c)
	if running(t, dir) {
		t.Error("the server runs on without members")
	}
}

func TestServerThatWasKilledIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	m := newMember(t, dir)
	pid := m.pid(t)
	c := start(t, dir)
	go sleepInServer(c) // a backend that does not notice the postmaster's death
	time.Sleep(200 * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := start(t, dir)
	if got := again.server.postmaster(); got == pid || got == 0 {
		t.Errorf("server is %d after %d was killed", got, pid)
	}
	query(t, c, "SELECT ''")
	stop(t, c)
	stop(t, again)
	if !running(t, dir) {
		t.Error("the server was stopped while the other process is a member")
	}
	m.leave(t)
	if running(t, dir) {
		t.Error("the last one out left the server running")
	}
}

// sleepInServer keeps a backend busy computing.
func sleepInServer(c *Cluster) {
	conn, err := pgx.Connect(context.Background(), c.URL())
	if err != nil {
		return
	}
	defer conn.Close(context.Background())
	_, _ = conn.Exec(context.Background(), "DO $$ BEGIN LOOP END LOOP; END $$")
}

func TestProcessKilledWhileItStartsLeavesNothingInTheWay(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for _, after := range []time.Duration{20, 60, 100, 200, 400, 800, 1200} {
		m := newMember(t, dir)
		time.Sleep(after * time.Millisecond)
		m.kill()
	}
	c := start(t, dir)
	query(t, c, "SELECT ''")
	stop(t, c)
	if running(t, dir) {
		t.Error("the server runs on without members")
	}
}

func TestProcessesThatStartAndLeaveAtOnceShareOneServer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for range 10 {
		var wg sync.WaitGroup
		a, b := newMember(t, dir), newMember(t, dir)
		if one, other := a.pid(t), b.pid(t); one != other {
			t.Fatalf("two servers, %d and %d", one, other)
		}
		// One leaves while a third comes: it joins or starts anew.
		c := newMember(t, dir)
		wg.Go(func() { a.leave(t) })
		wg.Go(func() { b.leave(t) })
		c.pid(t)
		wg.Wait()
		c.leave(t)
		if running(t, dir) {
			t.Fatal("the last one out left the server running")
		}
	}
}

func running(t *testing.T, dir string) bool {
	t.Helper()
	data, err := currentPlace(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := accountFor(data)
	if err != nil {
		t.Fatal(err)
	}
	return newServer(data, a, slog.New(slog.DiscardHandler)).alive()
}

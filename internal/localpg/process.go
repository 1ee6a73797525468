package localpg

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// postmaster is the pid of the server's first process, 0 where none runs. The
// pid in postmaster.pid alone says nothing: after a crash it may be anyone's.
func (s *server) postmaster() int {
	pid := s.recordedPid()
	if pid == 0 || !strings.Contains(commandLine(pid)+" ", " -D "+s.data+" ") {
		return 0
	}
	return pid
}

// recordedPid is what postmaster.pid says, 0 where it says nothing.
func (s *server) recordedPid() int {
	content, err := os.ReadFile(s.pidPath())
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid < 2 {
		return 0
	}
	return pid
}

// dropStalePid removes a postmaster.pid that PostgreSQL would take for a
// running server's: an empty one, or one whose pid is another process by now.
// Any other it judges better itself, since the file also leads it to shared
// memory still in use. No server of ours may be alive.
func (s *server) dropStalePid() {
	pid := s.recordedPid()
	if pid == 0 || syscall.Kill(pid, 0) != syscall.ESRCH {
		os.Remove(s.pidPath())
	}
}

func (s *server) pidPath() string { return filepath.Join(s.data, "postmaster.pid") }

// killOrphans ends processes of a server whose postmaster was killed: a busy
// one can stay for as long as its query runs. Their title holds the cluster's
// name; what else /proc tells needs more rights in a container.
func (s *server) killOrphans() {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err == nil && strings.HasPrefix(commandLine(pid), "postgres: "+s.clusterName()+":") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// commandLine is the command of a living process, its words parted by spaces;
// "" for one that is gone or a zombie.
func commandLine(pid int) string {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil && !exists("/proc/self") {
		content, _ = exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	}
	return string(bytes.TrimSpace(bytes.ReplaceAll(content, []byte{0}, []byte{' '})))
}

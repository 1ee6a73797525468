package localpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// socketRoot is short, since a socket's path holds 107 bytes, and the same for
// all processes: TMPDIR and XDG_RUNTIME_DIR differ between a shell and cron,
// and the latter is deleted when the user logs out.
const socketRoot = "/tmp"

// port only names the socket's file; there is no TCP.
const port = "5432"

// socketDir is the directory of the socket of the cluster at data.
func socketDir(data string, a account) string {
	return filepath.Join(socketRoot, "geodlq-"+strconv.Itoa(a.uid)+"-"+shortHash(data))
}

// makeSocketDir makes dir for the account, or accepts the one there if it is
// the account's alone. The database trusts who can open the socket, so this
// directory is the door: one that another user made is refused.
func makeSocketDir(dir string, a account) error {
	if err := checkSocketRoot(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the socket's directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("making the socket's directory: %w", err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || (owner != a.uid && owner != os.Geteuid()) {
		return fmt.Errorf("%s is not a directory of %s alone (owner uid %d, mode %v): remove it", dir, a.name, owner, info.Mode())
	}
	if owner != a.uid {
		return os.Lchown(dir, a.uid, a.gid)
	}
	return nil
}

// checkSocketRoot refuses a root in which others can rename our directory.
func checkSocketRoot() error {
	info, err := os.Stat(socketRoot)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%s is writable by others and not sticky (%v): no safe place for a socket", socketRoot, info.Mode())
	}
	return nil
}

// clearSocketDir drops what a killed server left, which would make the next
// one refuse to start. No server may be alive.
func clearSocketDir(dir string) {
	name := filepath.Join(dir, ".s.PGSQL."+port)
	os.Remove(name)
	os.Remove(name + ".lock")
}

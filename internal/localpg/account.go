package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that runs the server and owns its files.
type account struct {
	name     string
	uid, gid int
	home     string
}

// accountFor is the account that runs the cluster at data: who owns it, if it
// exists; else this user, or for root, as which PostgreSQL refuses to run, the
// user postgres.
func accountFor(data string) (account, error) {
	self := os.Geteuid()
	info, err := os.Stat(data)
	switch {
	case err == nil:
		owner := int(info.Sys().(*syscall.Stat_t).Uid)
		if self != 0 && owner != self {
			return account{}, fmt.Errorf("the cluster at %s belongs to uid %d, this process runs as uid %d: run as that user or choose another directory", data, owner, self)
		}
		if owner != 0 {
			return accountOf(strconv.Itoa(owner))
		}
		if exists(filepath.Join(data, "PG_VERSION")) {
			return account{}, fmt.Errorf("the cluster at %s belongs to root, as which PostgreSQL does not run: chown -R postgres it", data)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return account{}, fmt.Errorf("looking at the private cluster: %w", err)
	}
	if self != 0 {
		return accountOf(strconv.Itoa(self))
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as (the package postgresql makes one): %w", ErrNotInstalled)
	}
	return newAccount(u)
}

func accountOf(uid string) (account, error) {
	u, err := user.LookupId(uid)
	if err != nil {
		// A container's uid may have no entry; it can still own files.
		u = &user.User{Uid: uid, Gid: strconv.Itoa(os.Getegid()), Username: uid, HomeDir: "/"}
	}
	return newAccount(u)
}

func newAccount(u *user.User) (account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("uid of %s: %w", u.Username, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("gid of %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uid, gid: gid, home: u.HomeDir}, nil
}

// command is a program run by the account: in a session of its own, out of
// reach of the terminal's Ctrl-C, and with none of our groups or secrets.
func (a account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = a.environ()
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// sh runs a script in dir as the account, which then follows the links and
// gets the permissions of that account and not of root.
func (a account) sh(ctx context.Context, dir, script string, args ...string) *exec.Cmd {
	cmd := a.command(ctx, "/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir = dir
	return cmd
}

// environ is what the account's programs need and no more: a PG* variable of
// the user would change what they do, and a password has no place there.
func (a account) environ() []string {
	env := []string{"LC_ALL=C", "HOME=" + a.home, "USER=" + a.name}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "TZ", "LD_LIBRARY_PATH", "PROJ_DATA", "PROJ_LIB":
			env = append(env, kv)
		}
	}
	return env
}

// reaches tells whether the account can work in a directory of its own inside
// dir. It is tried, not computed from modes: parents, mounts and ACLs count.
func (a account) reaches(ctx context.Context, dir string) (bool, error) {
	probe, err := os.MkdirTemp(dir, "pg.probe-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(probe)
	if err := os.Lchown(probe, a.uid, a.gid); err != nil {
		return false, err
	}
	err = a.sh(ctx, "/", `cd "$1" && : >probe && rm probe`, probe).Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("running as %s: %w", a.name, err)
	}
	return true, nil
}

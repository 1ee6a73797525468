package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// majorOf reads which major version wrote the cluster at data: 0 where there
// is none yet.
func majorOf(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major := parseMajor(string(content))
	if major == 0 {
		return 0, fmt.Errorf("%s holds no version of PostgreSQL: %q", filepath.Join(data, "PG_VERSION"), content)
	}
	return major, nil
}

// initdb makes the cluster beside its place and renames it there when it is
// whole: what an interrupted one leaves is never taken for a cluster. lock is
// the server's, which initdb holds as long as it lives.
func (s *server) initdb(ctx context.Context, bin binaries, lock *os.File, sync bool) error {
	if err := s.clearPlace(); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(s.data), filepath.Base(s.data)+".init-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if err := os.Lchown(part, s.account.uid, s.account.gid); err != nil {
		return err
	}
	out, err := s.runInitdb(ctx, bin, lock, sync, part, "C.UTF-8")
	if err != nil && strings.Contains(out, "locale") {
		out, err = s.runInitdb(ctx, bin, lock, sync, part, "C")
	}
	if err != nil {
		return fmt.Errorf("making the private cluster: %w: %s", err, out)
	}
	if err := os.Rename(part, s.data); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.data))
}

// runInitdb runs initdb into part, an empty directory of the account.
func (s *server) runInitdb(ctx context.Context, bin binaries, lock *os.File, sync bool, part, locale string) (string, error) {
	args := []string{
		"--pgdata", part, "--username", superuser, "--encoding", "UTF8", "--locale", locale,
		"--auth-local", "trust", "--auth-host", "reject", "--data-checksums", "--no-instructions",
	}
	if !sync {
		args = append(args, "--no-sync")
	}
	cmd := s.account.command(ctx, bin.path("initdb"), args...)
	cmd.ExtraFiles = []*os.File{lock}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// clearPlace drops what interrupted runs left, and refuses a place where
// something else lies.
func (s *server) clearPlace() error {
	parent, prefix := filepath.Dir(s.data), filepath.Base(s.data)+".init-"
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(parent, entry.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(s.data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is no PostgreSQL cluster and not empty, move it away: %w", s.data, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

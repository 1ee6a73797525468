package localpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// movedRoot holds the clusters of root whose own directory the server's
// account can't reach, each named for a hash of that directory.
const movedRoot = "/var/lib/geodlq"

// enter finds where the cluster of dir lies and takes its lock. The locks lie
// beside the cluster, not in dir, since a copy of dir points to the same one.
func enter(ctx context.Context, dir string, logger *slog.Logger) (*os.File, string, error) {
	home := homePlace(dir)
	lock, err := lockExclusive(ctx, lockPath(home))
	if err != nil {
		return nil, "", err
	}
	data, err := locate(ctx, dir, logger)
	if err == nil && data == home {
		return lock, home, nil
	}
	unlock(lock)
	if err != nil {
		return nil, "", err
	}
	lock, err = lockExclusive(ctx, lockPath(data))
	return lock, data, err
}

// locate decides where the cluster of dir lies: in dir, unless the account
// that runs the server can't reach it there. The caller holds the home lock.
func locate(ctx context.Context, dir string, logger *slog.Logger) (string, error) {
	home := homePlace(dir)
	data, err := currentPlace(dir)
	if err != nil || data != home {
		return data, err
	}
	account, err := accountFor(home)
	if err != nil || account.uid == os.Geteuid() {
		return home, err
	}
	ok, err := account.reaches(ctx, dir)
	if err != nil || ok {
		return home, err
	}
	if newServer(home, account, logger).alive() {
		return home, nil // it was reachable when the server started
	}
	data = filepath.Join(movedRoot, shortHash(home))
	if err := move(ctx, home, data); err != nil {
		return "", fmt.Errorf("moving the cluster to where %s can reach it: %w", account.name, err)
	}
	if err := replaceFile(pointerPath(dir), data+"\n"); err != nil {
		return "", err
	}
	logger.Warn("the user that runs PostgreSQL can't reach the data directory, so the cluster lies elsewhere",
		"user", account.name, "dir", dir, "cluster", data)
	return data, nil
}

// currentPlace is where the cluster of dir was put, without deciding anything.
func currentPlace(dir string) (string, error) {
	content, err := os.ReadFile(pointerPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return homePlace(dir), nil
	}
	if err != nil {
		return "", err
	}
	data := strings.TrimSpace(string(content))
	if filepath.Clean(data) != data || filepath.Dir(data) != movedRoot {
		return "", fmt.Errorf("%s does not name a cluster under %s", pointerPath(dir), movedRoot)
	}
	return data, os.MkdirAll(movedRoot, 0o755)
}

// move readies data, and brings along a cluster that lies at home already.
func move(ctx context.Context, home, data string) error {
	if err := os.MkdirAll(movedRoot, 0o755); err != nil {
		return err
	}
	if !exists(home) || exists(data) {
		return nil
	}
	err := os.Rename(home, data)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	part := data + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", home, part).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", home, err, out)
	}
	syscall.Sync()
	if err := os.Rename(part, data); err != nil {
		return err
	}
	return os.RemoveAll(home)
}

// removePlace deletes the cluster at data and what lies beside it. The caller
// holds its lock, which is the last to go.
func removePlace(dir, data string) error {
	paths := []string{data, pointerPath(dir), membersPath(data), serverPath(data), lockPath(homePlace(dir)), lockPath(data)}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing the cluster: %w", err)
		}
	}
	return nil
}

func homePlace(dir string) string   { return filepath.Join(dir, "pg") }
func pointerPath(dir string) string { return filepath.Join(dir, "pg.place") }

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// replaceFile writes a file that is never seen half-written.
func replaceFile(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

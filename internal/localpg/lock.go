package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	lockShared = syscall.LOCK_SH | syscall.LOCK_NB
	lockSole   = syscall.LOCK_EX | syscall.LOCK_NB
)

func lockPath(data string) string    { return data + ".lock" }
func membersPath(data string) string { return data + ".members" }
func serverPath(data string) string  { return data + ".server" }

// openLock opens a lock file, made if missing. Every call opens it anew: an
// flock belongs to the open file, so that two calls in one process exclude
// each other as two processes do.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("this data directory was used by another account, run as that or choose another directory: %w", err)
	}
	return f, err
}

// lockExclusive waits until the lock at path is ours, or ctx ends.
func lockExclusive(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := openLock(path)
		if err != nil {
			return nil, err
		}
		if tryExclusive(f) && isFileAt(f, path) {
			return f, nil
		}
		f.Close()
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for %s: %w", path, err)
		}
	}
}

// tryExclusive takes the lock of f for itself if no other open file has it. A
// shared lock that f held is lost when it fails.
func tryExclusive(f *os.File) bool { return flock(f, lockSole) == nil }

// unlock releases at once, also where a child that is just being started still
// has the file open.
func unlock(f *os.File) {
	_ = flock(f, syscall.LOCK_UN)
	f.Close()
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			return err
		}
	}
}

// isFileAt tells that path still names f: Remove unlinks lock files that
// others may have open.
func isFileAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

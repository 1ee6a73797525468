package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// volume is the directory of one process, with its segments. Its process holds the
// lock in it for as long as it lives; one whose lock is free was left by a process
// that is gone, and belongs to whoever takes the lock.
type volume struct {
	dir  string
	lock *os.File
}

const (
	lockName   = "lock"
	badName    = "bad" // beside the volumes: lines that can't be loaded
	segmentExt = ".ndjson"
	posExt     = ".pos" // how far a segment was loaded
)

// volumeName tells volumes from what else may lie there, such as lost+found.
var volumeName = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z-\d+-[0-9a-f]{8}$`)

// errTaken: another process has the volume.
var errTaken = errors.New("the volume belongs to another process")

// newVolume makes a directory for this process. Names sort by the time of their
// making.
func newVolume(root string) (*volume, error) {
	for {
		name := fmt.Sprintf("%s-%d-%08x", time.Now().UTC().Format("20060102T150405.000Z"), os.Getpid(), rand.Uint32())
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		v, err := takeVolume(dir)
		if errors.Is(err, errTaken) {
			continue // adopted before we had it
		}
		if err != nil {
			return nil, err
		}
		return v, syncDir(root)
	}
}

// takeVolume locks a volume that nobody holds; errTaken, or fs.ErrNotExist where it
// is gone.
func takeVolume(dir string) (*volume, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, errTaken
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
		lock.Close() // removed between the opening and the locking
		return nil, err
	}
	return &volume{dir, lock}, nil
}

// remove deletes an emptied volume.
func (v *volume) remove() error {
	defer v.lock.Close()
	if err := os.Remove(filepath.Join(v.dir, lockName)); err != nil {
		return err
	}
	return os.Remove(v.dir)
}

// segments are the paths of the volume's files in the order of writing.
func (v *volume) segments() ([]string, error) {
	return filepath.Glob(filepath.Join(v.dir, "*"+segmentExt)) // sorted
}

// nextSegment is the path of the n-th file.
func (v *volume) segment(n int) string {
	return filepath.Join(v.dir, fmt.Sprintf("%08d%s", n, segmentExt))
}

// volumeDirs are all volumes under a root, oldest first.
func volumeDirs(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() && volumeName.MatchString(e.Name()) {
			dirs = append(dirs, filepath.Join(root, e.Name()))
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// usage is the bytes of all segments under a root, whosever they are.
func usage(root string) (int64, error) {
	dirs, err := volumeDirs(root)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, dir := range dirs {
		paths, err := (&volume{dir: dir}).segments()
		if err != nil {
			return 0, err
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil { // else loaded meanwhile
				total += info.Size()
			}
		}
	}
	return total, nil
}

// position is how far a segment was loaded, 0 where that is not known.
func position(segment string) int64 {
	text, err := os.ReadFile(segment + posExt)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// setPosition notes how far a segment was loaded. Where the note is lost, what was
// loaded is loaded again, which changes nothing.
func setPosition(segment string, n int64) error {
	next := segment + posExt + ".new"
	if err := os.WriteFile(next, strconv.AppendInt(nil, n, 10), 0o600); err != nil {
		return err
	}
	return os.Rename(next, segment+posExt)
}

func removeSegment(segment string) error {
	if err := os.Remove(segment); err != nil {
		return err
	}
	err := os.Remove(segment + posExt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

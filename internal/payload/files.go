package payload

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
)

// files makes blobs that are files durable, which fileblob leaves to others.
type files struct {
	root string

	mu     sync.Mutex
	synced string // the day whose directories are on disk up to the root
}

// there returns an error where the root is gone, such as a volume that is not
// mounted: fileblob would make it anew.
func (f *files) there() error {
	if _, err := os.Stat(f.root); err != nil {
		return fmt.Errorf("the directory of blobs: %w", err)
	}
	return nil
}

// syncDirs makes the name of a new file durable: its directory, and at the first of
// a day those above, which may be new too.
func (f *files) syncDirs(day string) error {
	if err := syncDir(filepath.Join(f.root, filepath.FromSlash(day))); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced == day {
		return nil
	}
	for dir := path.Dir(day); ; dir = path.Dir(dir) {
		if err := syncDir(filepath.Join(f.root, filepath.FromSlash(dir))); err != nil {
			return err
		}
		if dir == "." {
			break
		}
	}
	if err := syncDir(filepath.Dir(f.root)); err != nil {
		return err
	}
	f.synced = day
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Status is what a spool directory holds.
type Status struct {
	Volumes []VolumeStatus
	Bad     []BadFile
}

// VolumeStatus is what the volume of one process holds.
type VolumeStatus struct {
	Name    string
	Live    bool // its process runs, and loads it by itself
	Events  int
	Reports int
	Bytes   int64
	Oldest  *time.Time // when its first event was taken
	Bad     int        // lines that will be set aside
	Torn    int        // last lines that were cut short, and never acknowledged
}

// BadFile are lines that were set aside.
type BadFile struct {
	Path  string
	Lines int
}

// Inspect tells what the spool in a directory holds, whosever it is, and changes
// nothing.
func Inspect(dir string) (*Status, error) {
	dirs, err := volumeDirs(dir)
	if err != nil {
		return nil, err
	}
	status := &Status{}
	for _, d := range dirs {
		v, err := inspectVolume(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		status.Volumes = append(status.Volumes, *v)
	}
	status.Bad, err = badFiles(dir)
	return status, err
}

func inspectVolume(dir string) (*VolumeStatus, error) {
	status := &VolumeStatus{Name: filepath.Base(dir)}
	taken, err := takeVolume(dir)
	switch {
	case errors.Is(err, errTaken):
		status.Live = true
	case err != nil:
		return nil, err
	default:
		defer taken.lock.Close()
	}
	v := &volume{dir: dir}
	segments, err := v.segments()
	if err != nil {
		return nil, err
	}
	for _, segment := range segments {
		if info, err := os.Stat(segment); err == nil {
			status.Bytes += info.Size()
		}
	}
	return status, eachRecord(v, func(r Record) {
		if r.Event == nil {
			status.Reports++
			return
		}
		status.Events++
		if status.Oldest == nil || r.Event.ReceivedAt.Before(*status.Oldest) {
			status.Oldest = &r.Event.ReceivedAt
		}
	}, func(torn bool) {
		if torn {
			status.Torn++
		} else {
			status.Bad++
		}
	})
}

func badFiles(dir string) ([]BadFile, error) {
	paths, err := filepath.Glob(filepath.Join(dir, badName, "*"+segmentExt))
	if err != nil {
		return nil, err
	}
	var files []BadFile
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, BadFile{path, bytes.Count(text, []byte{'\n'})})
	}
	return files, nil
}

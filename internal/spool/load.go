package spool

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Apply does what records say, all of them or, with an error, perhaps none: then
// they are handed over again later. What it refuses for good it returns by index,
// with why; that is set aside.
type Apply func(ctx context.Context, records []Record) (refused map[int]error, err error)

// A batch of Load: enough to share a transaction, not so much that it takes memory.
const (
	batchRecords = 500
	batchBytes   = 4 << 20
)

// largeLine is from how many bytes on a line is a batch of its own, for which room is asked.
const largeLine = batchBytes

// Load hands over what is held, in the order in which it was taken, and lets go of
// what was applied. It adopts the volumes of processes that are gone. It returns how
// many records were applied, and the first error of apply or of the disk.
func (s *Spool) Load(ctx context.Context, apply Apply) (loaded int, err error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	if err := s.adopt(); err != nil {
		return 0, err
	}
	volumes, err := s.closed()
	if err != nil {
		return 0, err
	}
	for _, v := range volumes {
		n, err := s.loadVolume(ctx, v, apply)
		loaded += n
		if err != nil {
			return loaded, err
		}
	}
	return loaded, nil
}

// closed are all volumes of this process, oldest first, with no segment open.
func (s *Spool) closed() ([]*volume, error) {
	s.file.Lock()
	defer s.file.Unlock()
	volumes := slices.Clone(s.adopted)
	if s.own != nil {
		volumes = append(volumes, s.own)
	}
	return volumes, s.rotate()
}

func (s *Spool) loadVolume(ctx context.Context, v *volume, apply Apply) (loaded int, err error) {
	segments, err := v.segments()
	if err != nil {
		return 0, err
	}
	for _, segment := range segments {
		if s.isActive(segment) {
			return loaded, nil // begun meanwhile: next time
		}
		n, err := s.loadSegment(ctx, segment, apply)
		loaded += n
		if err != nil {
			return loaded, err
		}
	}
	return loaded, s.drop(v)
}

func (s *Spool) isActive(segment string) bool {
	s.file.Lock()
	defer s.file.Unlock()
	return s.active != nil && s.active.Name() == segment
}

// drop removes a volume that holds nothing any more.
func (s *Spool) drop(v *volume) error {
	s.file.Lock()
	defer s.file.Unlock()
	if left, err := v.segments(); err != nil || len(left) > 0 {
		return err
	}
	if v == s.own {
		s.own, s.serial = nil, 0
	} else {
		s.adopted = slices.DeleteFunc(s.adopted, func(other *volume) bool { return other == v })
	}
	s.counted = s.counted.AddDate(-1, 0, 0) // count anew
	return v.remove()
}

// openSegment opens a segment where it was loaded to.
func openSegment(segment string) (f *os.File, from int64, err error) {
	if f, err = os.Open(segment); err != nil {
		return nil, 0, err
	}
	if from, err = f.Seek(position(segment), io.SeekStart); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, from, nil
}

// batch is what is gathered of a segment.
type batch struct {
	records []Record
	lines   [][]byte // as they stand on disk
	bytes   int
	end     int64 // the offset behind it
}

func (s *Spool) loadSegment(ctx context.Context, segment string, apply Apply) (loaded int, err error) {
	f, from, err := openSegment(segment)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := &batch{end: from}
	flush := func() error {
		n, err := s.applyBatch(ctx, segment, b, apply)
		loaded += n
		*b = batch{end: b.end}
		return err
	}
	torn, err := scan(f, from, func(text []byte, end int64) error {
		if len(text) >= largeLine && s.options.Room != nil {
			if err := flush(); err != nil {
				return err
			}
			release, err := s.options.Room(ctx, len(text))
			if err != nil {
				return err
			}
			defer release() // its batch is full with it, and applied
		}
		b.end = end
		record, err := parse(text)
		if err != nil {
			return s.setAside(segment, text, err)
		}
		b.records, b.lines = append(b.records, record), append(b.lines, text)
		if b.bytes += len(text); len(b.records) < batchRecords && b.bytes < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return loaded, err
	}
	if torn > 0 {
		// Its writer died before it was acknowledged to anybody.
		s.options.Logger.Warn("a torn last line of the spool was dropped", "segment", filepath.Base(segment), "bytes", torn)
	}
	return loaded, removeSegment(segment)
}

// applyBatch applies what was gathered, notes how far it came, and sets aside what
// was refused.
func (s *Spool) applyBatch(ctx context.Context, segment string, b *batch, apply Apply) (int, error) {
	if len(b.records) == 0 {
		return 0, nil
	}
	refused, err := apply(ctx, b.records)
	if err != nil {
		return 0, err
	}
	for i, why := range refused {
		if err := s.setAside(segment, b.lines[i], why); err != nil {
			return 0, err
		}
	}
	// Where this can't be noted, for lack of room for instance, the segment is loaded
	// again after a crash; holding it would keep the room from being made.
	_ = setPosition(segment, b.end)
	s.forget(b.records)
	return len(b.records) - len(refused), nil
}

func (s *Spool) forget(records []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range records {
		s.note(&records[i], -1)
		if id, _, named := entryOf(&records[i]); named {
			delete(s.index, id)
		}
	}
}

// setAside keeps a line that can't be loaded, as it stands.
func (s *Spool) setAside(segment string, text []byte, why error) error {
	path := s.badPath(segment)
	s.options.Logger.Error("a line of the spool can't be loaded and was set aside", "file", path, "error", why)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(slices.Clone(text), '\n')); err != nil {
		return err
	}
	return f.Sync()
}

// adopt takes over the volumes of processes that are gone.
func (s *Spool) adopt() error {
	dirs, err := volumeDirs(s.options.Dir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if s.owns(dir) {
			continue
		}
		v, err := takeVolume(dir)
		if errors.Is(err, errTaken) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.learn(v); err != nil {
			v.lock.Close()
			return err
		}
		s.file.Lock()
		s.adopted = append(s.adopted, v)
		s.file.Unlock()
	}
	return nil
}

func (s *Spool) owns(dir string) bool {
	s.file.Lock()
	defer s.file.Unlock()
	return slices.ContainsFunc(append(slices.Clone(s.adopted), s.own), func(v *volume) bool { return v != nil && v.dir == dir })
}

// learn remembers what an adopted volume holds.
func (s *Spool) learn(v *volume) error {
	return eachRecord(v, func(r Record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note(&r, 1)
		if id, e, named := entryOf(&r); named {
			s.index[id] = e
		}
	}, nil)
}

// eachRecord calls each for every record of a volume that waits to be loaded, and
// flaw, if any, for what is none.
func eachRecord(v *volume, each func(Record), flaw func(torn bool)) error {
	segments, err := v.segments()
	if err != nil {
		return err
	}
	for _, segment := range segments {
		if err := eachOfSegment(segment, each, flaw); err != nil {
			return err
		}
	}
	return nil
}

func eachOfSegment(segment string, each func(Record), flaw func(torn bool)) error {
	f, from, err := openSegment(segment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // loaded meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	torn, err := scan(f, from, func(text []byte, _ int64) error {
		if record, err := parse(text); err == nil {
			each(record)
		} else if flaw != nil {
			flaw(false)
		}
		return nil
	})
	if torn > 0 && flaw != nil {
		flaw(true)
	}
	return err
}

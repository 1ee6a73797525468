// Package spool keeps on disk what is taken while the database is away:
// newline-delimited JSON, synced before it is acknowledged, loaded in order when
// the database is back.
//
// Each process writes to a volume of its own, a directory with a lock and with
// segments that are only appended to. Loading the same line again changes nothing,
// since an event has its work key and a report its report key; so a line is only
// let go after it was loaded, wherever a process is killed.
package spool

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"geodlq/internal/dlq"
)

// ErrFull: the spool holds as much as it may.
var ErrFull = errors.New("the spool is full")

// ErrClosed: the process is stopping.
var ErrClosed = errors.New("the spool is closed")

// Options say where a spool lies and how much it may hold.
type Options struct {
	Dir          string
	Max          int64         // bytes of all volumes together
	DedupeWindow time.Duration // within which the same content without a key is a duplicate
	Logger       *slog.Logger
	// Room is asked before a line of so many bytes is loaded, if it is large, and released
	// when that is done; nil: there always is. Its error, that ctx ended, ends the loading.
	Room func(ctx context.Context, bytes int) (release func(), err error)
}

// Spool is this process's part of the spool.
type Spool struct {
	options Options
	queue   chan *pending
	stop    chan struct{}
	stopped chan struct{}

	loading sync.Mutex // one Load at a time

	file    sync.Mutex // guards what follows, and the files
	own     *volume    // nil until something is written
	adopted []*volume  // of processes that are gone, oldest first
	active  *os.File   // the segment that is appended to, nil: the next write opens one
	size    int64      // of active
	serial  int        // of the last segment
	used    int64      // bytes of all volumes when last counted, and since
	counted time.Time

	held  atomic.Int64 // records
	mu    sync.Mutex   // guards what follows
	index map[[16]byte]entry
	days  map[day]int64
}

// day is what the ledger counts by.
type day struct {
	source string
	day    time.Time // its beginning, UTC
}

// entry is what is remembered of a record that is held.
type entry struct {
	body [8]byte // the beginning of its SHA-256
	at   int64   // when it was taken, Unix time
}

// Open opens the spool in a directory, which it makes, and adopts the volumes of
// processes that are gone.
func Open(o Options) (*Spool, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{
		options: o, queue: make(chan *pending, 1024), stop: make(chan struct{}), stopped: make(chan struct{}),
		index: map[[16]byte]entry{}, days: map[day]int64{},
	}
	if err := s.adopt(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	go s.run()
	return s, nil
}

// Close ends writing. What is held stays on disk, for the next process.
func (s *Spool) Close() error {
	close(s.stop)
	<-s.stopped
	s.file.Lock()
	defer s.file.Unlock()
	err := s.rotate()
	for _, v := range append(s.adopted, s.own) {
		if v != nil {
			v.lock.Close()
		}
	}
	return err
}

// Result is what became of a record.
type Result struct {
	Duplicate bool // the same is held already
	Conflict  bool // its key is held with another body; it was not taken
}

// pending are records that wait for their turn to be written.
type pending struct {
	records []Record
	results []Result
	done    chan error
}

// Append keeps records, and returns when they are on disk: ErrFull, ErrClosed, or
// what the disk said; then none was taken.
func (s *Spool) Append(ctx context.Context, records []Record) ([]Result, error) {
	p := &pending{records: records, results: make([]Result, len(records)), done: make(chan error, 1)}
	select {
	case s.queue <- p:
	case <-s.stop:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-p.done: // however long: the writer reads the records
		return p.results, err
	case <-s.stopped:
		return nil, ErrClosed
	}
}

// maxGroup bounds what is written before it is synced.
const maxGroup = 256

// run writes whatever is queued the moment the disk is free, and syncs it at once.
func (s *Spool) run() {
	defer close(s.stopped)
	for {
		var group []*pending
		select {
		case <-s.stop:
			return
		case p := <-s.queue:
			group = append(group, p)
		}
		for len(group) < maxGroup && len(s.queue) > 0 {
			group = append(group, <-s.queue)
		}
		s.write(group)
	}
}

// segmentMax is when the next segment is begun.
func (s *Spool) segmentMax() int64 { return min(64<<20, s.options.Max/8+1) }

// write appends a group and tells each how it went.
func (s *Spool) write(group []*pending) {
	s.file.Lock()
	defer s.file.Unlock()
	s.count()
	var taken []*pending
	fresh := map[[16]byte]entry{}
	room := s.options.Max - s.used
	for _, p := range group {
		need, added := s.sort(p, fresh)
		if need > room {
			for _, id := range added {
				delete(fresh, id)
			}
			p.done <- ErrFull
			continue
		}
		room -= need
		taken = append(taken, p)
	}
	err := s.append(taken)
	if err != nil {
		s.options.Logger.Error("the spool could not be written", "error", err)
	} else {
		s.remember(taken, fresh)
		if s.size >= s.segmentMax() {
			_ = s.rotate() // what matters was synced
		}
	}
	for _, p := range taken {
		p.done <- err
	}
}

// sort finds out which records of p are held already, or will be with the group. It
// returns what the others need, and their identities, which it adds to fresh.
func (s *Spool) sort(p *pending, fresh map[[16]byte]entry) (need int64, added [][16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.records {
		r := &p.records[i]
		id, e, named := entryOf(r)
		if !named {
			need += r.size()
			continue
		}
		was, ok := s.index[id]
		if !ok {
			was, ok = fresh[id]
		}
		expired := ok && r.Event != nil && r.Event.Content && time.Duration(e.at-was.at)*time.Second > s.options.DedupeWindow
		switch {
		case ok && !expired && was.body == e.body:
			p.results[i].Duplicate = true
		case ok && !expired:
			p.results[i].Conflict = true
		default:
			fresh[id], added = e, append(added, id)
			need += r.size()
		}
	}
	return need, added
}

// append writes and syncs. After a failure nothing of it is left, and the next write
// begins another segment.
func (s *Spool) append(group []*pending) (err error) {
	if !anyNew(group) {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	before := s.size
	defer func() {
		if err != nil {
			err = errors.Join(err, s.undo(before))
		}
	}()
	out := bufio.NewWriterSize(s.active, 256<<10)
	for _, p := range group {
		for i := range p.records {
			if p.results[i] != (Result{}) {
				continue
			}
			if err := p.records[i].write(out); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := s.active.Sync(); err != nil {
		return err
	}
	info, err := s.active.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	s.used += s.size - before
	return nil
}

func anyNew(group []*pending) bool {
	for _, p := range group {
		for _, r := range p.results {
			if r == (Result{}) {
				return true
			}
		}
	}
	return false
}

// open makes sure that there is a segment to append to.
func (s *Spool) open() error {
	if s.active != nil {
		return nil
	}
	if s.own == nil {
		own, err := newVolume(s.options.Dir)
		if err != nil {
			return err
		}
		s.own = own
	}
	s.serial++
	f, err := os.OpenFile(s.own.segment(s.serial), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := syncDir(s.own.dir); err != nil {
		f.Close()
		return err
	}
	s.active, s.size = f, 0
	return nil
}

// undo takes back what was written behind an offset and leaves the segment.
func (s *Spool) undo(before int64) error {
	err := s.active.Truncate(before)
	if before == 0 {
		err = errors.Join(err, os.Remove(s.active.Name()))
	}
	return errors.Join(err, s.rotate())
}

// rotate closes the segment that is appended to.
func (s *Spool) rotate() error {
	if s.active == nil {
		return nil
	}
	err := s.active.Close()
	s.active, s.size = nil, 0
	return err
}

// count looks how much all volumes hold, now and then: others write and load too.
func (s *Spool) count() {
	if time.Since(s.counted) < time.Second {
		return
	}
	if used, err := usage(s.options.Dir); err == nil {
		s.used, s.counted = used, time.Now()
	}
}

func (s *Spool) remember(taken []*pending, fresh map[[16]byte]entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range taken {
		for i := range p.records {
			if p.results[i] != (Result{}) {
				continue
			}
			s.note(&p.records[i], 1)
			if id, _, named := entryOf(&p.records[i]); named {
				s.index[id] = fresh[id]
			}
		}
	}
}

// note counts a record that is held from now on, or no longer.
func (s *Spool) note(r *Record, n int64) {
	s.held.Add(n)
	if r.Event == nil {
		return
	}
	d := day{r.Event.Source, r.Event.ReceivedAt.UTC().Truncate(24 * time.Hour)}
	if s.days[d] += n; s.days[d] <= 0 {
		delete(s.days, d)
	}
}

// entryOf is the identity of a record, and what is remembered of it; named is false
// for a report without a key, of which each counts.
func entryOf(r *Record) (id [16]byte, e entry, named bool) {
	if r.Event != nil {
		sum := r.Event.SHA256()
		copy(e.body[:], sum[:])
		e.at = r.Event.ReceivedAt.Unix()
		return idOf("event", r.Event.WorkKey), e, true
	}
	if r.Report.ReportKey == "" {
		return id, e, false
	}
	sum := sha256.Sum256([]byte(r.Report.WorkKey))
	copy(e.body[:], sum[:])
	return idOf("report", r.Report.ReportKey), e, true
}

func idOf(kind, key string) (id [16]byte) {
	sum := sha256.Sum256([]byte(kind + "\x00" + key))
	copy(id[:], sum[:])
	return id
}

// Holds reports whether any of the events' keys waits to be loaded.
func (s *Spool) Holds(events []dlq.NewEvent) bool {
	if s.held.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range events {
		if _, ok := s.index[idOf("event", events[i].WorkKey)]; ok {
			return true
		}
	}
	return false
}

// Lookup tells when the event of a work key was taken, if it waits to be loaded.
func (s *Spool) Lookup(workKey string) (receivedAt time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.index[idOf("event", workKey)]
	return time.Unix(e.at, 0).UTC(), ok
}

// Held is how many records wait to be loaded by this process.
func (s *Spool) Held() int64 { return s.held.Load() }

// Days are the events that wait to be loaded by this process, by source and day.
func (s *Spool) Days() []dlq.LedgerSpooled {
	s.mu.Lock()
	defer s.mu.Unlock()
	days := make([]dlq.LedgerSpooled, 0, len(s.days))
	for d, n := range s.days {
		days = append(days, dlq.LedgerSpooled{Source: d.source, Day: d.day, Count: n})
	}
	return days
}

// Usage is how many bytes all volumes hold, and may hold.
func (s *Spool) Usage() (used, limit int64) {
	s.file.Lock()
	defer s.file.Unlock()
	s.count()
	return s.used, s.options.Max
}

// MinRoom is less than which hardly any record fits in.
const MinRoom = 4096

// Probe returns nil if the spool could take something now.
func (s *Spool) Probe() error {
	if used, limit := s.Usage(); limit-used < MinRoom {
		return ErrFull
	}
	f, err := os.CreateTemp(s.options.Dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return err
	}
	return f.Sync()
}

func (s *Spool) badPath(segment string) string {
	return filepath.Join(s.options.Dir, badName, filepath.Base(filepath.Dir(segment))+"-"+filepath.Base(segment))
}

package door

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"geodlq/internal/dlq"
	"geodlq/internal/spool"
	"geodlq/internal/store"
)

// How often the door looks whether the database is back, and, while all is well,
// whether a process that is gone left something in the spool.
const (
	retryEvery   = 500 * time.Millisecond
	troubleEvery = 2 * time.Second // after what is neither
	adoptEvery   = 20 * time.Second
)

// probeTimeout bounds the question whether the database takes writes.
const probeTimeout = 5 * time.Second

// Run loads the spool whenever the database is there, until ctx ends.
func (d *Door) Run(ctx context.Context) {
	for {
		pause := adoptEvery
		switch ok := d.turn(ctx); {
		case !ok:
			pause = troubleEvery
		case d.IsAway() || d.spool.Held() > 0:
			pause = retryEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.wake:
			timer.Stop()
			if pause != adoptEvery && !sleep(ctx, pause) { // what is in the way is not hurried
				return
			}
		case <-timer.C:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// turn finds out whether the database is back, and loads what there is. It is false
// where something else was in the way, which is logged.
func (d *Door) turn(ctx context.Context) bool {
	err := d.probe(ctx)
	if err == nil {
		_, err = d.Load(ctx)
	}
	switch {
	case err == nil:
		d.back()
	case ctx.Err() != nil:
	case unavailable(err):
		d.Away(err)
		d.because(err)
	default:
		d.back() // it answered; something else is in the way
		d.logger.Error("the spool could not be loaded; it is tried again", "error", err)
		return false
	}
	return true
}

func (d *Door) probe(ctx context.Context) error {
	if !d.IsAway() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return d.store.Probe(ctx)
}

// Load loads what the spool holds; it returns how many records were loaded.
func (d *Door) Load(ctx context.Context) (int, error) {
	loaded, err := d.spool.Load(ctx, d.apply)
	if loaded > 0 {
		d.logger.Info("loaded from the spool", "records", loaded)
	}
	return loaded, err
}

// apply is applyAll; what went well shows that the database is back.
func (d *Door) apply(ctx context.Context, records []spool.Record) (map[int]error, error) {
	refused, err := d.applyAll(ctx, records)
	if err == nil {
		d.back()
	}
	return refused, err
}

// applyAll accepts events and counts reports in their order. What the database refuses
// for a reason of its own is refused alone; the rest is not kept waiting for it.
func (d *Door) applyAll(ctx context.Context, records []spool.Record) (map[int]error, error) {
	refused := map[int]error{}
	for i := 0; i < len(records); {
		if records[i].Report != nil {
			if err := d.applyReport(ctx, records[i].Report); store.Refused(err) {
				refused[i] = err
			} else if err != nil {
				return nil, err
			}
			i++
			continue
		}
		n := leadingEvents(records[i:])
		if err := d.applyEvents(ctx, records[i:i+n], i, refused); err != nil {
			return nil, err
		}
		i += n
	}
	return refused, nil
}

// applyReport counts a report. One that was acknowledged under a key that turns out to
// be another's is counted all the same, under a key of its own.
func (d *Door) applyReport(ctx context.Context, r *dlq.Report) error {
	_, err := d.reportNow(ctx, r)
	if errors.Is(err, store.ErrReportKeyTaken) {
		sum := sha256.Sum256([]byte(r.WorkKey))
		again := *r
		again.ReportKey = fmt.Sprintf("#%s~%x", r.ReportKey, sum[:8])
		_, err = d.reportNow(ctx, &again)
	}
	return err
}

func leadingEvents(records []spool.Record) int {
	for i := range records {
		if records[i].Event == nil {
			return i
		}
	}
	return len(records)
}

// applyEvents accepts a run of events, the first of which is the record at.
func (d *Door) applyEvents(ctx context.Context, run []spool.Record, at int, refused map[int]error) error {
	events := make([]dlq.NewEvent, len(run))
	for i := range run {
		events[i] = *run[i].Event
		events[i].Replayed = true
	}
	receipts, err := d.acceptNow(ctx, events)
	switch {
	case err == nil:
	case !store.Refused(err):
		return err // later it may go well
	case len(run) == 1:
		refused[at] = err
		return nil
	default:
		for i := range run {
			if err := d.applyEvents(ctx, run[i:i+1], at+i, refused); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range receipts {
		if receipts[i].Conflict {
			if err := d.acceptConflict(ctx, &events[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// acceptConflict keeps an event that was acknowledged, while the database could not
// be asked, under a key that turns out to name another body: it becomes a letter at
// <key>~<the beginning of its SHA-256>.
func (d *Door) acceptConflict(ctx context.Context, e *dlq.NewEvent) error {
	const text = "its key was used for another body before; while the database was away that could not be seen, so it was accepted, and is kept here"
	sum := e.SHA256()
	e.WorkKey += "~" + hex.EncodeToString(sum[:8])
	return d.store.AcceptDead(ctx, e, &dlq.Failure{
		Stage: dlq.StageEnvelope, Class: dlq.ClassMalformedPayload, Error: text, Tries: 1, SrcCRS: e.ClaimedCRS,
		Fingerprint: dlq.Fingerprint(dlq.StageEnvelope, dlq.ClassMalformedPayload, e.Task, text),
	})
}

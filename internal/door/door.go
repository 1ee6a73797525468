// Package door takes events and reports, so that they are durable before they are
// answered: in the database, or, while that is away, in the spool on this machine's
// disk, from which they are loaded in order when it is back.
package door

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"geodlq/internal/dlq"
	"geodlq/internal/payload"
	"geodlq/internal/pipeline"
	"geodlq/internal/spool"
	"geodlq/internal/store"
)

// Door is where events and reports come in.
type Door struct {
	store   *store.Store
	spool   *spool.Spool
	locator pipeline.Locator
	logger  *slog.Logger
	wake    chan struct{} // there is something to load, or to find out

	mu     sync.Mutex
	since  time.Time // when the database was found away; zero: it is not
	reason string
}

// New returns a door over a store and a spool.
func New(s *store.Store, sp *spool.Spool, logger *slog.Logger) *Door {
	return &Door{
		store: s, spool: sp, locator: pipeline.Locator{PostGIS: s}, logger: logger, wake: make(chan struct{}, 1),
	}
}

// Accept takes events as Store.Accept does; while the database is away it spools
// them, and their receipts say so. dlq.ErrNoRoom where neither can be.
func (d *Door) Accept(ctx context.Context, events []dlq.NewEvent) ([]dlq.Receipt, error) {
	now := time.Now().UTC().Truncate(time.Microsecond) // as the database keeps it
	for i := range events {
		events[i].ReceivedAt = now
	}
	if !d.IsAway() && !d.spool.Holds(events) {
		receipts, err := d.acceptNow(ctx, events)
		if !d.mustSpool(ctx, err) {
			return receipts, err
		}
	}
	records := make([]spool.Record, len(events))
	for i := range events {
		records[i].Event = &events[i]
	}
	results, err := d.keep(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("accept %d events: %w", len(events), err)
	}
	receipts := make([]dlq.Receipt, len(events))
	for i, r := range results {
		receipts[i] = dlq.Receipt{
			WorkKey: events[i].WorkKey, State: dlq.EventAccepted, Spooled: true, Duplicate: r.Duplicate, Conflict: r.Conflict,
		}
	}
	return receipts, nil
}

// patience is how long the database may take over events before they are spooled
// instead: a server that hangs must not keep its senders.
func patience(events int) time.Duration {
	return 10*time.Second + time.Duration(events)*time.Millisecond
}

func (d *Door) acceptNow(ctx context.Context, events []dlq.NewEvent) ([]dlq.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(len(events)))
	defer cancel()
	receipts, err := d.store.Accept(ctx, events)
	return receipts, overdue(ctx, err)
}

// overdue sets an error apart that comes of our own impatience: the server may call
// it a cancelled statement.
func overdue(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// Report counts a report as Store.Report does, with its place; while the database
// is away it spools it. dlq.ErrNoRoom where neither can be.
func (d *Door) Report(ctx context.Context, r *dlq.Report) (*dlq.ReportReceipt, error) {
	if r.ReportKey == "" {
		// So that it counts once, however often it has to be handed over. No client's
		// key begins so.
		r.ReportKey = "#" + rand.Text()
	}
	r.ReceivedAt = time.Now().UTC().Truncate(time.Microsecond)
	if !d.IsAway() {
		receipt, err := d.reportNow(ctx, r)
		if !d.mustSpool(ctx, err) {
			return receipt, err
		}
	}
	results, err := d.keep(ctx, []spool.Record{{Report: r}})
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if results[0].Conflict {
		return nil, store.ErrReportKeyTaken
	}
	return &dlq.ReportReceipt{WorkKey: r.WorkKey, Spooled: true, Duplicate: results[0].Duplicate}, nil
}

func (d *Door) reportNow(ctx context.Context, r *dlq.Report) (*dlq.ReportReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(1))
	defer cancel()
	if err := d.locator.Locate(ctx, r); err != nil {
		return nil, overdue(ctx, err)
	}
	receipt, err := d.store.Report(ctx, r)
	return receipt, overdue(ctx, err)
}

// keep writes to the spool: dlq.ErrNoRoom where it can't.
func (d *Door) keep(ctx context.Context, records []spool.Record) ([]spool.Result, error) {
	results, err := d.spool.Append(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dlq.ErrNoRoom, err)
	}
	d.poke()
	return results, nil
}

// mustSpool reports whether an error says that the database is away, and remembers
// that it is, that the bucket of large bodies is, or that something else was in the way
// that may pass. A client that left is no reason.
func (d *Door) mustSpool(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	if errors.Is(err, payload.ErrUnavailable) {
		return true // the spool holds the large ones meanwhile
	}
	if unavailable(err) {
		d.Away(err)
		return true
	}
	return store.Passing(err)
}

func unavailable(err error) bool {
	return store.Unavailable(err) || errors.Is(err, context.DeadlineExceeded)
}

// EventStatus tells how an event fares: as the database has it, else as this
// process's spool does. dlq.ErrNotFound; while the database is away, an error that
// says so for what is not in the spool.
func (d *Door) EventStatus(ctx context.Context, workKey string) (*dlq.EventStatus, error) {
	receivedAt, held := d.spool.Lookup(workKey)
	if held && d.IsAway() {
		return spooledStatus(workKey, receivedAt), nil
	}
	status, err := d.store.EventStatus(ctx, workKey)
	if held && err != nil && (errors.Is(err, dlq.ErrNotFound) || unavailable(err)) {
		return spooledStatus(workKey, receivedAt), nil
	}
	return status, err
}

func spooledStatus(workKey string, receivedAt time.Time) *dlq.EventStatus {
	return &dlq.EventStatus{WorkKey: workKey, State: dlq.EventAccepted, Children: []string{}, ReceivedAt: receivedAt}
}

// AwayTimeout is how long a database that was found away is given over what is only
// read.
const AwayTimeout = 2 * time.Second

// State is how the door stands.
type State struct {
	Away   bool
	Since  time.Time
	Reason string // how the database is away, in words behind "the database"

	Held        int64 // records of this process's spool
	Used, Limit int64 // bytes of the spool
	Full        bool
}

// State returns how the door stands.
func (d *Door) State() State {
	s := State{Held: d.spool.Held()}
	s.Used, s.Limit = d.spool.Usage()
	s.Full = s.Limit-s.Used < spool.MinRoom
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Away, s.Since, s.Reason = !d.since.IsZero(), d.since, d.reason
	return s
}

// Spooled is what this process's spool holds, as the ledger counts it.
func (d *Door) Spooled() []dlq.LedgerSpooled { return d.spool.Days() }

// Ready returns nil once events can be taken durably, be it in the spool.
func (d *Door) Ready(ctx context.Context) error {
	if !d.IsAway() {
		err := d.store.Ping(ctx)
		if err == nil {
			return nil
		}
		d.Away(err)
	}
	if err := d.spool.Probe(); err != nil {
		return fmt.Errorf("%w: %w", dlq.ErrNoRoom, err)
	}
	return nil
}

// IsAway reports whether the database was found away, and not back since.
func (d *Door) IsAway() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// Away remembers that the database is away, as err says.
func (d *Door) Away(err error) {
	d.mu.Lock()
	first := d.since.IsZero()
	if first {
		d.since, d.reason = time.Now(), store.WhyUnavailable(err)
	}
	reason := d.reason
	d.mu.Unlock()
	if first {
		d.store.Reset()
		d.logger.Error("the database is away; events and reports are spooled", "how", reason, "error", err)
	}
	d.poke()
}

// because says anew how the database is away, as a look of our own found it: what those
// find who merely wait there, such as a closed connection, says less.
func (d *Door) because(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.since.IsZero() {
		d.reason = store.WhyUnavailable(err)
	}
}

func (d *Door) back() {
	d.mu.Lock()
	since := d.since
	d.since, d.reason = time.Time{}, ""
	d.mu.Unlock()
	if !since.IsZero() {
		d.logger.Info("the database is back", "away", time.Since(since).Round(time.Millisecond))
	}
}

func (d *Door) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

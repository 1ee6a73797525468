package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"geodlq/internal/dlq"
	"geodlq/internal/store"
	"geodlq/internal/triage"
)

// orderFlags are the flags of redrive and quarantine: a filter by the names of the
// API, and what to do with it.
type orderFlags struct {
	values     url.Values
	dryRun     bool
	everything bool
	reason     string
	wait       bool
}

// bindOrder adds the filter's names as flags, each of which may be repeated.
func (p *process) bindOrder(flags *flag.FlagSet) {
	p.order.values = url.Values{}
	for _, name := range dlq.FilterNames {
		flags.Func(strings.ReplaceAll(name, "_", "-"), "filter: "+name+", as in the API; may be repeated", func(text string) error {
			p.order.values.Add(name, text)
			return nil
		})
	}
	flags.BoolVar(&p.order.dryRun, "dry-run", false, "say what would go, and change nothing")
	flags.BoolVar(&p.order.everything, "everything", false, "every open letter is really meant")
	flags.StringVar(&p.order.reason, "reason", "", "why, for the history")
	flags.BoolVar(&p.order.wait, "wait", true, "wait for the outcome; workers must be running")
}

func runRedrive(ctx context.Context, p *process) error { return p.runOrder(ctx, dlq.ActionRedrive) }
func runQuarantine(ctx context.Context, p *process) error {
	return p.runOrder(ctx, dlq.ActionQuarantine)
}

// runOrder makes an order as the page does: a frozen set, previewed, then started.
func (p *process) runOrder(ctx context.Context, action dlq.Action) (err error) {
	if len(p.args) > 0 {
		return fmt.Errorf("unexpected argument %q", p.args[0])
	}
	filter, err := dlq.ParseFilter(p.order.values, time.Now())
	if err != nil {
		return err
	}
	s, closeStore, err := p.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	desk := triage.New(s)
	order, err := desk.Preview(ctx, triage.Order{
		Action: action, Filter: filter, Everything: p.order.everything, Actor: "cli", Reason: p.order.reason,
	})
	if err != nil {
		return err
	}
	p.printPreview(order)
	if p.order.dryRun || order.Eligible == 0 {
		return nil
	}
	if _, err := desk.Control(ctx, order.ID, "start", "cli", ""); err != nil {
		return err
	}
	if !p.order.wait {
		return nil
	}
	return p.follow(ctx, s, order.ID)
}

func (p *process) printPreview(o *dlq.Redrive) {
	fmt.Fprintf(p.stdout, "order %d: %d letters match, %d can be taken (%s)\n", o.ID, o.Matched, o.Eligible, o.Action)
	for _, c := range o.ByClass {
		if c.Count > 0 {
			fmt.Fprintf(p.stdout, "  %8d %s\n", c.Count, c.Name)
		}
	}
	for _, r := range o.Refused {
		fmt.Fprintf(p.stdout, "  %8d refused: %s\n", r.Count, r.Reason)
	}
	if o.Action == dlq.ActionRedrive && o.BadData > 0 {
		fmt.Fprintf(p.stdout, "  %8d of them are bad data, and will fail again unless what judged them has changed\n", o.BadData)
	}
}

// follow prints the counts of an order until it ends.
func (p *process) follow(ctx context.Context, s *store.Store, id int64) error {
	var last dlq.RedriveCounts
	for {
		o, err := s.RedriveByID(ctx, id)
		if err != nil {
			return err
		}
		if c := o.Counts; c != last {
			fmt.Fprintf(p.stdout, "waiting %d, running %d, done %d, failed %d, quarantined %d, skipped %d\n",
				c.Waiting, c.Running, c.Replayed, c.Failed, c.Quarantined, c.Skipped)
			last = c
		}
		if o.State.Ended() {
			fmt.Fprintf(p.stdout, "order %d is %s\n", id, o.State)
			return nil
		}
		select {
		case <-ctx.Done():
			fmt.Fprintf(p.stdout, "order %d goes on without being watched\n", id)
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

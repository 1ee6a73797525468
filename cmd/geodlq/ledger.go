package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"geodlq/internal/dlq"
)

// ledgerFlags are the flags of ledger: the API's query, and whether to check first.
type ledgerFlags struct {
	values url.Values
	check  bool
}

func (p *process) bindLedger(flags *flag.FlagSet) {
	p.ledger.values = url.Values{}
	for name, help := range map[string]string{
		"source": "only of this source; may be repeated",
		"since":  "the first day, as 2026-11-30; else the last seven",
		"until":  "the day behind the last",
	} {
		flags.Func(name, help, func(text string) error {
			p.ledger.values.Add(name, text)
			return nil
		})
	}
	flags.BoolVar(&p.ledger.check, "check", false, "hold the whole ledger against the tables now; fails if it does not add up")
}

// maxLedgerLines bounds what is printed.
const maxLedgerLines = 1000

// runLedger prints the last days of the ledger, or checks it.
func runLedger(ctx context.Context, p *process) (err error) {
	if len(p.args) > 0 {
		return fmt.Errorf("unexpected argument %q", p.args[0])
	}
	q, err := dlq.ParseLedgerQuery(p.ledger.values, time.Now())
	if err != nil {
		return err
	}
	s, closeStore, err := p.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	if p.ledger.check {
		check, err := s.CheckLedger(ctx)
		if err != nil {
			return err
		}
		return printCheck(p.stdout, check)
	}
	l, err := s.Ledger(ctx, q, maxLedgerLines)
	if err != nil {
		return err
	}
	return printLedger(p.stdout, q, l)
}

// errLedger ends a check that found something.
var errLedger = errors.New("the ledger does not add up")

func printCheck(w io.Writer, check *dlq.LedgerCheck) error {
	if check.Mismatched == 0 {
		fmt.Fprintln(w, "the ledger adds up")
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "day\tledger\ttables\tfigure\tsource\t")
	for _, m := range check.Mismatches {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t\n", m.Day.Format(time.DateOnly), m.Ledger, m.Tables, m.Column, m.Source)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d figures are not what the tables hold", errLedger, check.Mismatched)
}

func printLedger(w io.Writer, q dlq.LedgerQuery, l *dlq.Ledger) error {
	if len(l.Days) == 0 {
		fmt.Fprintf(w, "nothing was received from %s until %s\n", q.Since.Format(time.DateOnly), q.Until.Format(time.DateOnly))
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "day\treceived\tprocessed\tdead\tin flight\tduplicates\treports\trefused\tsource\t")
	line := func(day, source string, d *dlq.LedgerDay) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n",
			day, d.Received, d.Processed, d.Dead, d.InFlight, d.Duplicates, d.Reports, refusedText(d), source)
	}
	for i := range l.Days {
		line(l.Days[i].Day.Format(time.DateOnly), l.Days[i].Source, &l.Days[i])
	}
	line("total", "", &l.Totals)
	if err := table.Flush(); err != nil {
		return err
	}
	if more := l.Rows - int64(len(l.Days)); more > 0 {
		fmt.Fprintf(w, "%d rows more are in the total; -source and -since narrow it down\n", more)
	}
	switch c := l.Check; {
	case c == nil:
		fmt.Fprintln(w, "not checked yet; -check does it now")
	case c.Mismatched > 0:
		fmt.Fprintf(w, "IT DOES NOT ADD UP: %d figures, checked %s; -check lists them\n", c.Mismatched, c.CheckedAt.UTC().Format(time.RFC3339))
	default:
		fmt.Fprintf(w, "adds up, checked %s\n", c.CheckedAt.UTC().Format(time.RFC3339))
	}
	return nil
}

// refusedText is what was refused by status: 409:2 413:1.
func refusedText(d *dlq.LedgerDay) string {
	one := dlq.Ledger{Totals: *d}
	var parts []string
	for _, status := range one.RefusedStatuses() {
		parts = append(parts, fmt.Sprintf("%d:%d", status, d.Refused[status]))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " ")
}

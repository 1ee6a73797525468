package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"geodlq/internal/door"
	"geodlq/internal/spool"
	"geodlq/internal/store"
)

func runSpool(ctx context.Context, p *process) error {
	if len(p.args) != 1 {
		return errors.New("spool wants status or load")
	}
	switch p.args[0] {
	case "status":
		return p.spoolStatus()
	case "load":
		return p.spoolLoad(ctx)
	}
	return fmt.Errorf("spool: %q is neither status nor load", p.args[0])
}

// spoolStatus lists what waits on disk, of every process, and changes nothing.
func (p *process) spoolStatus() error {
	options := p.config.spool(nil)
	status, err := spool.Inspect(options.Dir)
	if err != nil {
		return err
	}
	if len(status.Volumes) == 0 && len(status.Bad) == 0 {
		fmt.Fprintf(p.stdout, "%s is empty: nothing waits for the database\n", options.Dir)
		return nil
	}
	out := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "VOLUME\tPROCESS\tEVENTS\tREPORTS\tBYTES\tOLDEST\tBAD\tTORN")
	var used int64
	for _, v := range status.Volumes {
		process, oldest := "gone", "-"
		if v.Live {
			process = "runs"
		}
		if v.Oldest != nil {
			oldest = v.Oldest.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\n", v.Name, process, v.Events, v.Reports, v.Bytes, oldest, v.Bad, v.Torn)
		used += v.Bytes
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%d of %d bytes are used. A process that runs loads its own; geodlq spool load loads the others.\n", used, options.Max)
	for _, bad := range status.Bad {
		fmt.Fprintf(p.stdout, "%d lines that can't be loaded were set aside in %s\n", bad.Lines, bad.Path)
	}
	return nil
}

// spoolLoad loads what processes that are gone have left.
func (p *process) spoolLoad(ctx context.Context) error {
	logger, err := p.logger()
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, p.config, logger)
	if err != nil {
		return err
	}
	defer db.close()
	held, err := spool.Open(p.config.spool(logger))
	if err != nil {
		return err
	}
	defer held.Close()
	bucket, err := p.config.openBucket(ctx)
	if err != nil {
		return err
	}
	defer bucket.Close()
	loaded, err := door.New(store.New(db.store, bucket, p.config.rules()), held, logger).Load(ctx)
	fmt.Fprintf(p.stdout, "%d events and reports were loaded\n", loaded)
	return err
}

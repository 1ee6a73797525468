// Command geodlq is a dead-letter queue for spatial events and geotasks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends the process at once
	}()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "geodlq:", err)
		os.Exit(1)
	}
}

// command is one subcommand.
type command struct {
	name, args, help string
	run              func(ctx context.Context, p *process) error
}

var commands = []command{
	{"serve", "", "serve the web and work the jobs", runServe},
	{"web", "", "serve the web alone", runWeb},
	{"work", "", "work the jobs alone", runWork},
	{"demo", "", "serve with a sample incident, and a sink that is down over Iberia", runDemo},
	{"redrive", "", "redrive the letters of a filter, as the page does", runRedrive},
	{"quarantine", "", "quarantine the letters of a filter", runQuarantine},
	{"spool", "status|load", "what waits on disk for the database; load what a process that is gone left", runSpool},
	{"ledger", "", "print what was received and what became of it, by day and source", runLedger},
	{"migrate", "", "bring the database to the newest version, capture triggers included", runMigrate},
	{"counts", "verify|rebuild", "hold the counts beside the letters against them, or make them anew", runCounts},
	{"seed", "N", "make N synthetic letters, for benchmarks", runSeed},
	{"version", "", "print the version", runVersion},
}

// process is what a subcommand has of its surroundings.
type process struct {
	config         config
	order          orderFlags
	ledger         ledgerFlags
	args           []string // behind the flags
	stdout, stderr io.Writer
}

// run is the whole program, without globals, so that a test can start it.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		usage(stderr)
		return errors.New("name a command")
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(stdout)
		return nil
	}
	for _, c := range append(slices.Clone(commands), runEvents) {
		if c.name != args[0] {
			continue
		}
		p := &process{stdout: stdout, stderr: stderr}
		flags := flag.NewFlagSet("geodlq "+c.name, flag.ContinueOnError)
		flags.SetOutput(stderr)
		flags.Usage = func() {
			fmt.Fprintf(stderr, "geodlq %s %s: %s\n\nEach flag has an environment variable; the flag wins.\n\n", c.name, c.args, c.help)
			flags.PrintDefaults()
		}
		if err := p.config.bind(flags, getenv); err != nil {
			return err
		}
		switch c.name {
		case "redrive", "quarantine":
			p.bindOrder(flags)
		case "ledger":
			p.bindLedger(flags)
		}
		for rest := args[1:]; ; rest = rest[1:] { // flags may stand behind arguments
			if err := flags.Parse(rest); err != nil {
				return err
			}
			if rest = flags.Args(); len(rest) == 0 {
				break
			}
			p.args = append(p.args, rest[0])
		}
		if err := p.config.check(); err != nil {
			return err
		}
		return c.run(ctx, p)
	}
	usage(stderr)
	return fmt.Errorf("there is no command %q", args[0])
}

func usage(w io.Writer) {
	fmt.Fprint(w, "geodlq: a dead-letter queue for spatial events and geotasks\n\nusage: geodlq COMMAND [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-22s %s\n", c.name+" "+c.args, c.help)
	}
	fmt.Fprint(w, "\ngeodlq COMMAND -h lists the flags.\n")
}

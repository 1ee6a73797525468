package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"geodlq/internal/store"
	"geodlq/jobs"
)

// runEvent is the command of a process that works on one event alone; it is started
// by a worker and named in no usage.
var runEvent = command{"run-event", "EVENT JOB TRIES", "work on one event, alone", runAlone}

// runAlone prints how it ended as JSON.
func runAlone(ctx context.Context, p *process) error {
	if len(p.args) != 3 {
		return errors.New("run-event wants three numbers")
	}
	var n [3]int64
	for i, text := range p.args {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("run-event: %w", err)
		}
	}
	pool, err := store.Connect(ctx, p.config.databaseURL, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	bucket, err := p.config.openBucket(ctx)
	if err != nil {
		return err
	}
	defer bucket.Close()
	result, err := jobs.RunAlone(ctx, store.New(pool, bucket, p.config.rules()), p.config.jobs(), n[0], n[1], int(n[2]))
	if err != nil {
		return err
	}
	return json.NewEncoder(p.stdout).Encode(result)
}

// failedAlone is the exit code of a process that lived to say that it could not work
// on its event.
const failedAlone = 1

// isolate starts this program anew for one event, over the same database and with
// the same configuration.
func (c config) isolate(databaseURL string) jobs.Isolate {
	return func(ctx context.Context, eventID, jobID int64, tries int) (*jobs.Isolated, *jobs.Death, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		child := exec.CommandContext(ctx, self, runEvent.name, strconv.FormatInt(eventID, 10), strconv.FormatInt(jobID, 10), strconv.Itoa(tries))
		child.Env = append(os.Environ(), c.environment(databaseURL)...)
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive us
		var stdout bytes.Buffer
		child.Stdout, child.Stderr = &stdout, os.Stderr
		err = child.Run()
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != failedAlone {
			return nil, deathOf(exit.ProcessState), nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("run event %d alone: %w", eventID, err)
		}
		result := &jobs.Isolated{}
		if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
			return nil, nil, fmt.Errorf("run event %d alone: %w", eventID, err)
		}
		return result, nil, nil
	}
}

func deathOf(state *os.ProcessState) *jobs.Death {
	death := &jobs.Death{ExitCode: state.ExitCode(), Text: state.String()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		death.ExitCode = 128 + int(status.Signal()) // as shells have it
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		death.MaxRSS = usage.Maxrss << 10
	}
	return death
}

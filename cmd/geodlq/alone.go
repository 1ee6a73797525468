package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"geodlq/internal/store"
	"geodlq/jobs"
)

// runEvents is the command of a process that works on one event at a time, alone; it
// is started by a worker and named in no usage.
var runEvents = command{"run-events", "", "work on one event at a time, alone", runAlone}

// aloneOrder is what the process is told, a line of JSON each.
type aloneOrder struct {
	EventID int64 `json:"event_id"`
	JobID   int64 `json:"job_id"`
	Tries   int   `json:"tries"`
}

// aloneAnswer is what it says of it.
type aloneAnswer struct {
	Begun  bool           `json:"begun,omitempty"` // it is at it now: what ends it from here on is the event
	Result *jobs.Isolated `json:"result"`
	Error  string         `json:"error,omitempty"` // it could not work on it
}

// runAlone answers each order, until there are no more. It does not outlive who gives
// them, whatever it is at.
func runAlone(ctx context.Context, p *process) error {
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
	s := store.New(pool, bucket, p.config.rules())
	orders := make(chan aloneOrder)
	go func() {
		for dec := json.NewDecoder(os.Stdin); ; {
			var order aloneOrder
			if dec.Decode(&order) != nil {
				os.Exit(0)
			}
			orders <- order
		}
	}()
	out := json.NewEncoder(p.stdout)
	for order := range orders {
		if err := out.Encode(aloneAnswer{Begun: true}); err != nil {
			return err
		}
		answer := aloneAnswer{}
		answer.Result, err = jobs.RunAlone(ctx, s, p.config.jobs(), order.EventID, order.JobID, order.Tries)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

// failedAlone is the exit code of a process that lived to say that it could not work.
const failedAlone = 1

// aloneRuns is how many events such a process works on before another takes its
// place, so that memory is not blamed on who did not take it.
const aloneRuns = 100

// isolator keeps a process to work on events alone. It is used by one job at a time.
type isolator struct {
	config  config
	child   *exec.Cmd // nil: none runs
	orders  io.WriteCloser
	answers *bufio.Reader
	runs    int
}

// isolate starts this program anew, over the same database and with the same
// configuration, where it does not run, and lets it work on an event.
func (c config) isolate(databaseURL string) jobs.Isolate {
	c.databaseURL = databaseURL
	i := &isolator{config: c}
	return i.run
}

func (i *isolator) run(ctx context.Context, eventID, jobID int64, tries int) (*jobs.Isolated, *jobs.Death, error) {
	if err := i.start(); err != nil {
		return nil, nil, fmt.Errorf("run event %d alone: %w", eventID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = i.child.Process.Kill() })
	answer, begun, err := i.ask(aloneOrder{eventID, jobID, tries})
	if !stop() || ctx.Err() != nil {
		i.end()
		return nil, nil, ctx.Err()
	}
	if err != nil {
		state := i.end()
		if begun && state != nil && state.ExitCode() != failedAlone && state.ExitCode() != 0 {
			return nil, deathOf(state), nil
		}
		return nil, nil, fmt.Errorf("run event %d alone: %w", eventID, err)
	}
	if i.runs++; i.runs >= aloneRuns {
		i.end()
	}
	if answer.Error != "" {
		return nil, nil, fmt.Errorf("run event %d alone: %s", eventID, answer.Error)
	}
	return answer.Result, nil, nil
}

func (i *isolator) start() error {
	if i.child != nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, runEvents.name)
	child.Env = append(os.Environ(), i.config.environment(i.config.databaseURL)...)
	child.Stderr = os.Stderr
	orders, err := child.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	i.child, i.orders, i.answers, i.runs = child, orders, bufio.NewReader(answers), 0
	return nil
}

// ask gives an order and returns the answer; begun tells whether the process came so
// far as to work on it.
func (i *isolator) ask(order aloneOrder) (answer *aloneAnswer, begun bool, err error) {
	if err := json.NewEncoder(i.orders).Encode(order); err != nil {
		return nil, false, err
	}
	first, err := i.hear()
	if err != nil || !first.Begun {
		return nil, false, errors.Join(err, errors.New("it did not begin"))
	}
	answer, err = i.hear()
	if err == nil && answer.Error == "" && answer.Result == nil {
		err = errors.New("it gave no answer")
	}
	return answer, true, err
}

func (i *isolator) hear() (*aloneAnswer, error) {
	text, err := i.answers.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	answer := &aloneAnswer{}
	return answer, json.Unmarshal(text, answer)
}

// end lets the process go, and tells how it ended.
func (i *isolator) end() *os.ProcessState {
	_ = i.orders.Close()
	_ = i.child.Wait() // how it ended is in its state
	state := i.child.ProcessState
	i.child = nil
	return state
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

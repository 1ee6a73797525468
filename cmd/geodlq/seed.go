package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

func runSeed(ctx context.Context, p *process) (err error) {
	if len(p.args) != 1 {
		return errors.New("seed wants one number: geodlq seed 100000")
	}
	n, err := strconv.Atoi(p.args[0])
	if err != nil || n < 1 || n > 100_000_000 {
		return fmt.Errorf("seed: %q is not a number of letters", p.args[0])
	}
	s, closeStore, err := p.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	began := time.Now()
	if err := s.Seed(ctx, n); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%d letters in %.1f s\n", n, time.Since(began).Seconds())
	return err
}

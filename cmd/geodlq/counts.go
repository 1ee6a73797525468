package main

import (
	"context"
	"errors"
	"fmt"
)

// runCounts verifies the counts that the map and the charts read, or makes them anew.
// Both run beside everything else.
func runCounts(ctx context.Context, p *process) (err error) {
	if len(p.args) != 1 || (p.args[0] != "verify" && p.args[0] != "rebuild") {
		return errors.New("counts wants a word: geodlq counts verify, or geodlq counts rebuild")
	}
	s, closeStore, err := p.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	if p.args[0] == "rebuild" {
		letters, err := s.RebuildCounts(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "the counts are made anew, of %d letters\n", letters)
		return err
	}
	found, err := s.VerifyCounts(ctx)
	if err != nil {
		return err
	}
	if found.Wrong > 0 {
		return fmt.Errorf("the counts are wrong about %d kinds of letters, of %d letters in all; run: geodlq counts rebuild", found.Wrong, found.Letters)
	}
	_, err = fmt.Fprintf(p.stdout, "the counts are right about %d letters\n", found.Letters)
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"

	"geodlq/migrations"
)

// runMigrate also puts capture triggers back that were lost.
func runMigrate(ctx context.Context, p *process) (err error) {
	logger, err := p.logger()
	if err != nil {
		return err
	}
	db, err := connect(ctx, p.config, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := migrations.Up(ctx, db.store); err != nil {
		return err
	}
	if err := migrations.Check(ctx, db.store); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, "the database is at the newest version")
	return nil
}

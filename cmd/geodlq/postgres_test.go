package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"geodlq/internal/localpg"
	"github.com/jackc/pgx/v5"
)

// postgres is a PostgreSQL of a test's own, which it may stop and kill.
type postgres struct {
	t       testing.TB
	options localpg.Options
	cluster *localpg.Cluster
	data    string
}

func startPostgres(t testing.TB) *postgres {
	t.Helper()
	p := &postgres{t: t, options: localpg.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}}
	p.start()
	t.Cleanup(func() {
		_ = p.cluster.Close()
		if err := localpg.Remove(context.Background(), p.options.Dir); err != nil {
			t.Error(err)
		}
	})
	p.query(func(conn *pgx.Conn) error {
		return conn.QueryRow(context.Background(), "show data_directory").Scan(&p.data)
	})
	return p
}

func (p *postgres) start() {
	p.t.Helper()
	cluster, err := localpg.Start(context.Background(), p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.cluster != nil {
		_ = cluster.Close() // the first membership keeps it up
		return
	}
	p.cluster = cluster
}

func (p *postgres) query(ask func(*pgx.Conn) error) {
	p.t.Helper()
	conn, err := pgx.Connect(context.Background(), p.cluster.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := ask(conn); err != nil {
		p.t.Fatal(err)
	}
}

// pid is the server's process, which the first line of its file names.
func (p *postgres) pid() int {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// Ways to stop a server: a fast shutdown, and an immediate one, after which it has
// to recover.
const (
	fast      = syscall.SIGINT
	immediate = syscall.SIGQUIT
)

func (p *postgres) stop(how syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.pid(), how); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(60 * time.Second); p.cluster.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("PostgreSQL does not stop")
		}
	}
}

// privateURL is where the private cluster of a data directory answers, which a
// process of ours keeps up.
func privateURL(t testing.TB, dir string) string {
	t.Helper()
	cluster, err := localpg.Start(context.Background(), localpg.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	t.Cleanup(func() {
		if err := localpg.Remove(context.Background(), dir); err != nil {
			t.Logf("%v", err)
		}
	})
	return cluster.URL()
}

// TestADumpIsRestoredWithEveryLetter restores what pg_dump wrote, as whoever backs the
// database up will have to.
func TestADumpIsRestoredWithEveryLetter(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	s := startCommand(t, "serve", pg.cluster.URL(), nil)
	s.spread(100)
	s.post("bad", bowtie)
	s.settle("bad")
	s.exec("create database restored")
	server := &standby{t: t, of: pg, bin: pg.binaries()}
	dump := server.command("pg_dump", "-Fc", "-d", pg.cluster.URL())
	restore := server.command("pg_restore", "--exit-on-error", "-d", pg.cluster.URLFor("restored"))
	var said bytes.Buffer
	dump.Stderr, restore.Stderr = &said, &said
	pipe, err := dump.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	restore.Stdin = pipe
	if err := restore.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dump.Run(), restore.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	again := startCommand(t, "serve", pg.cluster.URLFor("restored"), nil)
	if n := again.get("/v1/dead-letters?status=pending&status=redriving&status=quarantined&status=replayed&status=abandoned").json(t)["numberMatched"]; n != 101.0 {
		t.Errorf("%v letters", n)
	}
	if out, err := again.command("counts", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	again.post("another", bowtie)
	again.settle("another")
}

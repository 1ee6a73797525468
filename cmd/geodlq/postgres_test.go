package main

import (
	"context"
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

package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/payload"
)

// ErrReadOnly: the database is a replica, or was made read-only.
var ErrReadOnly = errors.New("the database is read-only")

// Unavailable reports whether err says that the database is away, read-only or
// full, rather than that something is wrong with what was asked. A bucket that is
// away is payload.ErrUnavailable and none of this.
func Unavailable(err error) bool {
	if errors.Is(err, payload.ErrUnavailable) {
		return false
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch {
		case strings.HasPrefix(pgErr.Code, "08"), // connection_exception
			strings.HasPrefix(pgErr.Code, "53"),  // insufficient_resources
			strings.HasPrefix(pgErr.Code, "57P"), // shutdown, crash, cannot_connect_now
			pgErr.Code == "25006":                // read_only_sql_transaction
			return true
		}
		return false
	}
	if errors.Is(err, ErrReadOnly) {
		return true
	}
	var connectErr *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connectErr) || errors.As(err, &netErr) ||
		errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// WhyUnavailable says how the database is away, in words that follow "the
// database".
func WhyUnavailable(err error) string {
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == "25006", errors.Is(err, ErrReadOnly):
		return "takes no writes"
	case errors.As(err, &pgErr) && pgErr.Code == "53100": // disk_full
		return "is full"
	case errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "53"):
		return "lacks resources"
	case errors.Is(err, context.DeadlineExceeded):
		return "does not answer"
	}
	return "can't be reached"
}

// CodeOf is the SQLSTATE of an error in words, " (SQLSTATE 57014)", empty where it
// has none.
func CodeOf(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return " (SQLSTATE " + pgErr.Code + ")"
	}
	return ""
}

package store

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/payload"
)

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
	var connectErr *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connectErr) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
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

package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"geodlq/internal/dlq"
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
	var pathErr *fs.PathError // of a disk of ours; its errno passes for a net.Error
	if errors.As(err, &pathErr) {
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

// Passing reports whether err may pass, for all that it says: it is none of what was
// asked, nor of a schema that is not there.
func Passing(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		// transaction_rollback, object_not_in_prerequisite_state, operator_intervention,
		// system_error, internal_error
		return slices.Contains([]string{"40", "55", "57", "58", "XX"}, pgErr.Code[:2])
	}
	return !Refused(err)
}

// Refused reports whether err says that what was asked can't be done however often it
// is asked: the data is at fault (data_exception, integrity_constraint_violation).
func Refused(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "23")
	}
	return errors.Is(err, dlq.ErrConflict) || errors.Is(err, dlq.ErrInvalid) || errors.Is(err, dlq.ErrBadRequest)
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

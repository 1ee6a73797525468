package dlq

import (
	"errors"
	"fmt"
)

// Sentinels that callers translate into statuses of their protocol.
var (
	ErrNotFound   = errors.New("not found")
	ErrConflict   = errors.New("conflict")                  // the state of things forbids it
	ErrInvalid    = errors.New("invalid")                   // a value that can't be taken, whoever sends it
	ErrBadRequest = errors.New("bad request")               // a request that breaks the protocol
	ErrOverloaded = errors.New("overloaded")                // try again later
	ErrNoRoom     = errors.New("nothing more can be taken") // neither the database nor the spool takes it
	ErrTooLarge   = errors.New("too large")                 // over a limit of size or count
	ErrTooSlow    = errors.New("too slow")                  // what was asked for takes too long to find
	ErrSuperseded = errors.New("superseded")                // the fence did not hold: another job owns the unit
	ErrDuplicate  = errors.New("key with another body")     // a work key that was taken for other bytes

	// ErrCorrupt: such bytes are neither processed nor given out.
	ErrCorrupt = errors.New("the stored bytes do not match their SHA-256")
)

// A FieldError says what is wrong with one named value of a request.
type FieldError struct {
	Field  string
	Reason string
	Kind   error // ErrInvalid or ErrBadRequest
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }
func (e *FieldError) Unwrap() error { return e.Kind }

// Invalid is a FieldError for a value that can't be taken.
func Invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...), Kind: ErrInvalid}
}

// BadRequest is a FieldError for a request that breaks the protocol.
func BadRequest(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...), Kind: ErrBadRequest}
}

// A ConflictError says who was first, in words for people.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Conflict is a ConflictError.
func Conflict(format string, args ...any) error {
	return &ConflictError{Reason: fmt.Sprintf(format, args...)}
}

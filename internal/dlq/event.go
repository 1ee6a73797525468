package dlq

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EventState is where an accepted event stands.
type EventState string

// The states of an event. Processed, dead and split are terminal, but for a
// redrive, which takes a dead event back to retrying.
const (
	EventAccepted  EventState = "accepted"
	EventRetrying  EventState = "retrying"
	EventProcessed EventState = "processed"
	EventDead      EventState = "dead"
	EventSplit     EventState = "split" // a collection, replaced by its features
)

// NewEvent is one spatial message at the door.
type NewEvent struct {
	WorkKey    string            `json:"work_key"`          // see EventKey and ContentKey
	Content    bool              `json:"content,omitempty"` // WorkKey is a ContentKey: a duplicate only within the dedupe window
	Source     string            `json:"source"`
	Task       string            `json:"task,omitempty"`
	Subject    string            `json:"subject,omitempty"`
	Version    string            `json:"version,omitempty"`
	Body       []byte            `json:"-"` // exact bytes as received
	MediaType  string            `json:"media_type"`
	Headers    map[string]string `json:"headers,omitempty"`     // the headers that matter, lower-case names
	ClaimedCRS string            `json:"claimed_crs,omitempty"` // Content-Crs as sent
	ReceivedAt time.Time         `json:"received_at"`
	Replayed   bool              `json:"-"` // it comes from the spool, perhaps not for the first time
}

// SHA256 is the hash of the exact bytes.
func (e *NewEvent) SHA256() [sha256.Size]byte { return sha256.Sum256(e.Body) }

// CheckSHA256 returns ErrCorrupt where bytes are not those that were hashed.
func CheckSHA256(body, hash []byte) error {
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], hash) {
		return ErrCorrupt
	}
	return nil
}

// Receipt tells what became of a NewEvent at the door.
type Receipt struct {
	WorkKey   string
	JobID     int64
	State     EventState
	Duplicate bool
	Replay    bool // the duplicate is of itself: it was handed over before
	Spooled   bool // it waits on disk for the database; JobID is not known yet
	// Conflict: the key was taken for another body, and nothing was accepted.
	Conflict bool
}

// Event is an accepted event as a worker sees it.
type Event struct {
	ID           int64
	WorkKey      string
	Source       string
	Task         string
	Subject      string
	Version      string
	ParentID     *int64
	Ordinal      *int
	Size         int64  // of Body, in bytes
	Body         []byte // of a child: its byte range of the parent
	SHA256       []byte
	MediaType    string
	Headers      map[string]string
	ClaimedCRS   string
	InheritedCRS []string
	State        EventState
	JobID        int64
	ReceivedAt   time.Time
}

// Child reports whether the event is a feature of a collection.
func (e *Event) Child() bool { return e.ParentID != nil }

// EventStatus is what GET /v1/events/{work_key} tells.
type EventStatus struct {
	WorkKey    string
	JobID      int64
	State      EventState
	Attempts   int // final failures of the work key
	Tries      int // executions in the last run
	LetterID   *int64
	Parent     *string
	Children   []string
	ReceivedAt time.Time
	FinishedAt *time.Time
}

// DefaultSource is the source of those that name none.
const DefaultSource = "default"

// Limits of the parts of a work key, in bytes.
const (
	MaxKeyLen    = 512
	MaxSourceLen = 128
)

// contentPrefix begins the keys of events that bring none of their own.
const contentPrefix = "sha256:"

// CheckSource returns the source that a client named, or why it can't be one.
// Empty means DefaultSource.
func CheckSource(field, source string) (string, error) {
	switch {
	case source == "":
		return DefaultSource, nil
	case source == DefaultSource || source == strings.TrimSuffix(contentPrefix, ":"):
		return "", BadRequest(field, "%q is reserved; leave it out or choose another name", source)
	case len(source) > MaxSourceLen:
		return "", BadRequest(field, "longer than %d bytes", MaxSourceLen)
	case strings.ContainsAny(source, ":#"):
		return "", BadRequest(field, "must not contain ':' or '#'")
	}
	return source, printable(field, source)
}

// CheckName returns why name, a task for instance, can't be kept, or nil.
func CheckName(field, name string) error {
	if len(name) > MaxSourceLen {
		return BadRequest(field, "longer than %d bytes", MaxSourceLen)
	}
	return printable(field, name)
}

func printable(field, s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return BadRequest(field, "must be UTF-8 without control characters")
	}
	return nil
}

// EventKey is the work key of a client's own key: a source other than the
// default prefixes it, and a key of the default source that could be taken for
// one is prefixed too. source is one that CheckSource returned.
func EventKey(field, source, key string) (string, error) {
	switch {
	case key == "":
		return "", BadRequest(field, "is empty")
	case len(key) > MaxKeyLen:
		return "", BadRequest(field, "longer than %d bytes", MaxKeyLen)
	case strings.Contains(key, "#"):
		return "", BadRequest(field, "must not contain '#', which sets a feature apart from its collection")
	}
	if err := printable(field, key); err != nil {
		return "", err
	}
	if source == DefaultSource && !strings.Contains(key, ":") {
		return key, nil
	}
	return source + ":" + key, nil
}

// ContentKey is the work key of an event without a key: a hash over the source,
// the media type, the CRS claim and the body, each preceded by its length.
func ContentKey(source, mediaType, claimedCRS string, body []byte) string {
	h := sha256.New()
	for _, part := range []string{source, mediaType, claimedCRS} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	h.Write(body)
	return contentPrefix + hex.EncodeToString(h.Sum(nil))
}

// ChildKey is the work key of the i-th part of a collection or batch.
func ChildKey(parent string, i int) string { return parent + "#" + strconv.Itoa(i) }

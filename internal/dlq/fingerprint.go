package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// variable matches what differs between two errors of one cause: quoted text,
// addresses, UUIDs, hashes and numbers with what hangs on them.
var variable = regexp.MustCompile(
	`"[^"]*"|'[^']*'` +
		`|\bhttps?://\S+` +
		`|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b` +
		`|\b0x[0-9a-fA-F]+\b` +
		`|\b[0-9a-fA-F]{16,}\b` +
		`|[-+]?\d[\d.,:]*(?:[eE][-+]?\d+)?`)

// list matches a run of what variable left, such as the ordinates of a point.
var list = regexp.MustCompile(`…(?:[\s,;()\[\]/]*…)+`)

// GroupTitle is an error's text with numbers, ids and coordinates taken out:
// what letters of one cause have in common. Only the first line counts.
func GroupTitle(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = CleanText(line, 300)
	line = variable.ReplaceAllString(line, "…")
	return strings.TrimSpace(list.ReplaceAllString(line, "…"))
}

// Fingerprint names the group of a failure: 16 hexadecimal digits over stage,
// class, task and GroupTitle.
func Fingerprint(stage Stage, class Class, task, text string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(stage), string(class), task, GroupTitle(text)}, "\x1f")))
	return hex.EncodeToString(sum[:8])
}

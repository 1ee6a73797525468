package views

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"geodlq/internal/dlq"
)

// statusesOf are the statuses that a filter selects.
func statusesOf(f dlq.Filter) []dlq.Status {
	if len(f.Statuses) == 0 {
		return dlq.OpenStatuses
	}
	return f.Statuses
}

func allowedFor(a dlq.Action, f dlq.Filter) bool {
	return slices.ContainsFunc(statusesOf(f), a.Allowed)
}

// setActionsOf are the actions offered for a set, the likeliest first; abandoning
// stands apart.
func setActionsOf(f dlq.Filter) []dlq.Action {
	var out []dlq.Action
	for _, a := range []dlq.Action{dlq.ActionRedrive, dlq.ActionQuarantine, dlq.ActionRelease} {
		// Among open letters of every status, releasing is the exception.
		if a == dlq.ActionRelease && len(f.Statuses) == 0 {
			continue
		}
		if allowedFor(a, f) {
			out = append(out, a)
		}
	}
	return out
}

func abandonable(f dlq.Filter) bool { return allowedFor(dlq.ActionAbandon, f) }

// orderWord is an action as a button says it.
func orderWord(a dlq.Action, f dlq.Filter) string {
	if reopens(a, f) {
		return "Reopen"
	}
	return actionWord(a)
}

// reopens reports whether an action is to take up again what is resolved, which no set
// of letters waits for.
func reopens(a dlq.Action, f dlq.Filter) bool {
	return a == dlq.ActionRelease && !slices.Contains(statusesOf(f), dlq.StatusQuarantined)
}

func actionWord(a dlq.Action) string {
	switch a {
	case dlq.ActionRedrive:
		return "Redrive"
	case dlq.ActionQuarantine:
		return "Quarantine"
	case dlq.ActionRelease:
		return "Release"
	case dlq.ActionAbandon:
		return "Abandon"
	}
	return "Order"
}

// keyOf is the key of an action, "" if it has none.
func keyOf(a dlq.Action) string {
	switch a {
	case dlq.ActionRedrive:
		return "r"
	case dlq.ActionQuarantine:
		return "q"
	}
	return ""
}

// orderName is an order as a headline.
func orderName(r dlq.Redrive) string {
	if r.Action == dlq.ActionRedrive || !r.Action.Valid() {
		return "Redrive " + strconv.FormatInt(r.ID, 10)
	}
	return actionWord(r.Action) + " order " + strconv.FormatInt(r.ID, 10)
}

// startWord is the button that begins an order.
func startWord(r dlq.Redrive) string {
	if r.Action == dlq.ActionRedrive {
		return "Start redrive of " + number(r.Eligible)
	}
	return actionWord(r.Action) + " " + count(r.Eligible, "letter", "letters")
}

// itemWord is the state of a letter in an order, in the words of its action.
func itemWord(a dlq.Action, s dlq.RedriveItemState) string {
	switch s {
	case dlq.ItemReplayed:
		if a != dlq.ActionRedrive && a.Valid() {
			switch a {
			case dlq.ActionQuarantine:
				return "quarantined"
			case dlq.ActionRelease:
				return "released"
			case dlq.ActionAbandon:
				return "abandoned"
			}
		}
		return "replayed"
	case dlq.ItemFailed:
		if a == dlq.ActionRedrive {
			return "failed again"
		}
		return "failed"
	case dlq.ItemQuarantined:
		return "at the cap"
	case dlq.ItemWaiting, dlq.ItemRunning, dlq.ItemSkipped:
		return string(s)
	}
	return "unknown"
}

// itemClass is the style of a state; s may be anything.
func itemClass(s dlq.RedriveItemState) string {
	if slices.Contains(dlq.ItemStates, s) {
		return "i-" + string(s)
	}
	return "i-waiting"
}

func countIn(c dlq.RedriveCounts, s dlq.RedriveItemState) int64 {
	switch s {
	case dlq.ItemWaiting:
		return c.Waiting
	case dlq.ItemRunning:
		return c.Running
	case dlq.ItemReplayed:
		return c.Replayed
	case dlq.ItemFailed:
		return c.Failed
	case dlq.ItemQuarantined:
		return c.Quarantined
	case dlq.ItemSkipped:
		return c.Skipped
	}
	return 0
}

func ended(c dlq.RedriveCounts) int64 { return c.Replayed + c.Failed + c.Quarantined + c.Skipped }

func inAll(c dlq.RedriveCounts) int64 { return ended(c) + c.Waiting + c.Running }

// progressOrder is how states stand in a bar: what is over first.
var progressOrder = []dlq.RedriveItemState{dlq.ItemReplayed, dlq.ItemFailed, dlq.ItemQuarantined, dlq.ItemSkipped, dlq.ItemRunning, dlq.ItemWaiting}

// segmentOf is one part of a stacked bar.
type segmentOf struct {
	State dlq.RedriveItemState
	Count int64
	X, W  string // percent
}

// progressOf are the parts of an order's progress, those that are not empty.
func progressOf(c dlq.RedriveCounts) []segmentOf {
	all := inAll(c)
	if all <= 0 {
		return nil
	}
	var out []segmentOf
	x := 0.0
	for _, s := range progressOrder {
		n := countIn(c, s)
		if n <= 0 {
			continue
		}
		w := 100 * float64(n) / float64(all)
		out = append(out, segmentOf{s, n, strconv.FormatFloat(x, 'f', 2, 64) + "%", strconv.FormatFloat(w, 'f', 2, 64) + "%"})
		x += w
	}
	return out
}

// left is how long a running order still takes, at its pace so far; "" while that
// says nothing.
func left(r dlq.Redrive, now time.Time) string {
	over := ended(r.Counts)
	if r.State != dlq.RedriveRunning || r.StartedAt == nil || over < 5 {
		return ""
	}
	rest := inAll(r.Counts) - over
	if rest <= 0 {
		return ""
	}
	return "about " + age(time.Duration(float64(now.Sub(*r.StartedAt))*float64(rest)/float64(over))) + " left"
}

// asked is what an order's set was selected by, in words.
func asked(r dlq.Redrive, groups []dlq.Group, now time.Time) string {
	if r.Ticked {
		return count(r.Matched, "ticked letter", "ticked letters")
	}
	var parts []string
	for _, c := range chips(r.Filter, groups, now) {
		parts = append(parts, c.Name+" "+c.Value)
	}
	if len(parts) == 0 {
		return "all open letters"
	}
	return strings.Join(parts, " · ")
}

// stateWord is an order's state; stateClass its style.
func stateWord(r dlq.Redrive) string { return string(r.State) }

func stateClass(s dlq.RedriveState) string {
	switch s {
	case dlq.RedriveRunning, dlq.RedrivePreview, dlq.RedrivePaused, dlq.RedriveStopped, dlq.RedriveCancelled, dlq.RedriveDone:
		return "status o-" + string(s)
	}
	return "status"
}

// outcome is what became of an item, as far as that says more than its state.
func outcome(i dlq.RedriveItem) string {
	switch {
	case i.Outcome != "":
		return i.Outcome
	case i.State == dlq.ItemSkipped:
		return "changed since the preview, or called off"
	case i.State == dlq.ItemQuarantined:
		return "failed at the cap and was quarantined"
	case i.State == dlq.ItemFailed:
		return firstLine(i.Error)
	}
	return ""
}

// previewKept is how long a preview stays.
const previewKept = 15 * time.Minute

func stampMilli(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// onTheMap says how many of those that match have a place.
func onTheMap(c *dlq.Charts) string {
	if c.Located == c.Total {
		return "all on the map"
	}
	return number(c.Located) + " on the map"
}

// classWords is a class as a legend says it.
func classWords(c dlq.Class) string { return strings.ReplaceAll(string(c), "_", " ") }

// progressText is an order's progress as a sentence.
func progressText(r dlq.Redrive) string {
	var parts []string
	for _, s := range progressOrder {
		if n := countIn(r.Counts, s); n > 0 {
			parts = append(parts, number(n)+" "+itemWord(r.Action, s))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

// clock is a time of today for people.
func clock(t time.Time) string { return t.UTC().Format("15:04 UTC") }

// expired: a preview that can't be started any more, since the queue has moved on.
func (p RedrivePage) expired() bool {
	return p.Redrive.State == dlq.RedrivePreview && p.Now.Sub(p.Redrive.CreatedAt) > previewKept
}

package dlq

import "slices"

// Status is what became of a letter.
type Status string

// The statuses. Open letters are pending, redriving or quarantined; resolved
// ones replayed or abandoned. Letters are marked, never deleted.
const (
	StatusPending     Status = "pending"
	StatusRedriving   Status = "redriving"
	StatusQuarantined Status = "quarantined"
	StatusReplayed    Status = "replayed"
	StatusAbandoned   Status = "abandoned"
)

// Statuses lists every status, the open ones first.
var Statuses = []Status{StatusPending, StatusRedriving, StatusQuarantined, StatusReplayed, StatusAbandoned}

// OpenStatuses are the statuses a filter without any selects.
var OpenStatuses = []Status{StatusPending, StatusRedriving, StatusQuarantined}

// Valid reports whether s is one of Statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses, s) }

// Open reports whether a letter of this status still waits for somebody.
func (s Status) Open() bool { return slices.Contains(OpenStatuses, s) }

// Action is what an operator does to a letter.
type Action string

// The actions of operators. What the pipeline does (capture, replayed, failed)
// goes by the fence in the store and is no action.
const (
	ActionRedrive    Action = "redrive"
	ActionQuarantine Action = "quarantine"
	ActionRelease    Action = "release" // out of quarantine; reopens resolved letters too
	ActionAbandon    Action = "abandon"
)

// Actions lists every action.
var Actions = []Action{ActionRedrive, ActionQuarantine, ActionRelease, ActionAbandon}

// Valid reports whether a is one of Actions.
func (a Action) Valid() bool { return slices.Contains(Actions, a) }

// From lists the statuses from which a is allowed.
func (a Action) From() []Status {
	switch a {
	case ActionRedrive, ActionQuarantine:
		return []Status{StatusPending}
	case ActionRelease:
		return []Status{StatusQuarantined, StatusAbandoned, StatusReplayed}
	case ActionAbandon:
		return []Status{StatusPending, StatusQuarantined}
	}
	return nil
}

// To is the status that a leads to.
func (a Action) To() Status {
	switch a {
	case ActionRedrive:
		return StatusRedriving
	case ActionQuarantine:
		return StatusQuarantined
	case ActionRelease:
		return StatusPending
	case ActionAbandon:
		return StatusAbandoned
	}
	return ""
}

// Past is what was done, as in "it can't be released".
func (a Action) Past() string {
	switch a {
	case ActionRedrive:
		return "redriven"
	case ActionQuarantine:
		return "quarantined"
	case ActionRelease:
		return "released"
	case ActionAbandon:
		return "abandoned"
	}
	return string(a)
}

// Allowed reports whether a may be done to a letter of status s.
func (a Action) Allowed(s Status) bool { return slices.Contains(a.From(), s) }

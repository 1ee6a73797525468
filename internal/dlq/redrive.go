package dlq

import "time"

// Redrive is an order: an action over a set of letters that is frozen when it is
// previewed. Most are redrives, which gave the thing its name; quarantine,
// release and abandon go the same way.
type Redrive struct {
	ID       int64
	Action   Action
	State    RedriveState
	Filter   Filter // what selected the set; zero where it was ticked
	Ticked   bool   // the set was named by ids
	Matched  int64  // letters in the set
	Eligible int64  // of which the action may be done to
	// ByClass and ByStage count the eligible.
	ByClass []Count
	ByStage []Count
	Refused []Refusal
	// BadData are the eligible whose data is at fault: run again unchanged, they
	// will fail again.
	BadData int64
	Counts  RedriveCounts

	Actor     string
	Reason    string
	CreatedAt time.Time
	StartedAt *time.Time
	EndedAt   *time.Time
}

// RedriveState is where an order stands.
type RedriveState string

// The states of an order. Running feeds letters into the pipeline; it is done
// once each has its outcome.
const (
	RedrivePreview   RedriveState = "preview"
	RedriveRunning   RedriveState = "running"
	RedrivePaused    RedriveState = "paused"
	RedriveStopped   RedriveState = "stopped"
	RedriveCancelled RedriveState = "cancelled"
	RedriveDone      RedriveState = "done"
)

// Ended reports whether nothing more will be fed.
func (s RedriveState) Ended() bool {
	return s == RedriveStopped || s == RedriveCancelled || s == RedriveDone
}

// Refusal counts letters of a set that the action can't be done to.
type Refusal struct {
	Reason string
	Count  int64
}

// RedriveCounts count the letters of an order by how far they are.
type RedriveCounts struct {
	Waiting     int64 // not fed yet
	Running     int64 // fed, not ended
	Replayed    int64 // of the other actions: done
	Failed      int64
	Quarantined int64 // failed at the cap
	Skipped     int64 // changed since the preview, or called off
}

// RedriveItem is one letter of an order.
type RedriveItem struct {
	Position int64
	LetterID int64
	State    RedriveItemState
	Outcome  string // why, in words, where there is more to say than the state
	WorkKey  string
	Task     string
	Source   string
	Stage    Stage
	Class    Class
	Error    string
	EndedAt  *time.Time
}

// RedriveItemState is how far one letter of an order is.
type RedriveItemState string

// The states of a letter in an order, as RedriveCounts counts them.
const (
	ItemWaiting     RedriveItemState = "waiting"
	ItemRunning     RedriveItemState = "running"
	ItemReplayed    RedriveItemState = "replayed"
	ItemFailed      RedriveItemState = "failed"
	ItemQuarantined RedriveItemState = "quarantined"
	ItemSkipped     RedriveItemState = "skipped"
)

// ItemStates lists every state of a letter in an order.
var ItemStates = []RedriveItemState{ItemWaiting, ItemRunning, ItemReplayed, ItemFailed, ItemQuarantined, ItemSkipped}

// Charts count letters for the page: each dimension under the whole filter except
// itself, so that a chart is a filter and shows what another choice would bring.
type Charts struct {
	Total, Located int64 // under the whole filter

	Groups     []Group // the largest twenty
	GroupCount int     // of all
	ByClass    []Count // zeros included
	ByStage    []Count // zeros included
	ByStatus   []Count // zeros included
	BySource   []Count // the largest twenty
	ByTask     []Count // the largest twenty

	BucketSeconds int
	Buckets       []Bucket
}

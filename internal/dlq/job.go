package dlq

// JobKind is the kind of the jobs that process events, and of no other: the
// capture trigger watches it.
const JobKind = "process_event"

// EventArgs are the arguments of a job that processes an event. They are small
// because River keeps them in an index.
type EventArgs struct {
	EventID int64 `json:"event_id"`
}

// Kind names the job to River.
func (EventArgs) Kind() string { return JobKind }

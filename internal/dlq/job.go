package dlq

// JobKind is the kind of the jobs that process events, and of no other: the
// capture trigger watches it.
const JobKind = "process_event"

// JobPriority is that of the jobs that process events; River takes 1 before 2. What an
// operator ordered, and upkeep, are not to wait for a full queue.
const JobPriority = 2

// EventArgs are the arguments of a job that processes an event. They are small
// since every change of a job writes them anew.
type EventArgs struct {
	EventID int64 `json:"event_id"`
}

// Kind names the job to River.
func (EventArgs) Kind() string { return JobKind }

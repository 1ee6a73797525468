package dlq

import "time"

// Filter selects letters. Every reader (list, map, charts, counts, export,
// preview, redrive) selects by the same one, so that they can't disagree. The
// zero Filter selects all open letters.
type Filter struct {
	BBox        *Box
	Stages      []Stage
	Classes     []Class
	Statuses    []Status   // none: the open ones
	Since       *time.Time // failed_at, inclusive
	Until       *time.Time // failed_at, exclusive
	Tasks       []string
	Sources     []string
	Groups      []string // fingerprints
	CRSs        []string // as claimed
	CodeVersion []string
	LocatedBy   []LocatedBy
	Located     *bool
	Query       string // in the error's text or the work key, without regard to case
	Props       []Prop
	WorkKeys    []string
}

// Box selects anchors, edges included, in degrees of EPSG:4326. West > East
// crosses the antimeridian (RFC 7946 §5.2).
type Box struct{ West, South, East, North float64 }

// Prop selects by a value beside the letter: root is params, labels or payload.
type Prop struct {
	Root  string
	Path  []string
	Value string
}

// Cursor is the last letter of a page: the next one begins behind it.
type Cursor struct {
	FailedAt time.Time
	ID       int64
}

// Page is one page of letters, newest first.
type Page struct {
	Letters []Letter
	Next    *Cursor // nil on the last page
}

// Count is the number of letters of one name.
type Count struct {
	Name        string
	Count       int64
	Located     int64
	Latest      *time.Time
	MaxAttempts int
}

// Group is the letters of one cause.
type Group struct {
	Group       string
	Title       string
	Stage       Stage
	Class       Class
	Count       int64
	Located     int64
	First, Last time.Time
	Sample      int64 // a letter of the group
}

// Bucket is one bar of a timeline.
type Bucket struct {
	Start   time.Time
	ByClass map[Class]int64
}

// Stats counts the letters of a filter, every figure under the whole of it.
type Stats struct {
	Total, Located int64
	ByStage        []Count
	ByClass        []Count
	ByStatus       []Count
	Groups         []Group // the largest twenty
	BucketSeconds  int
	Buckets        []Bucket
}

// Depth is the state of the whole queue, whatever the filter.
type Depth struct {
	Pending, Redriving, Quarantined, Unlocated int64
	InLastHour, OutLastHour                    int64
	OldestOpen                                 *time.Time
	InFlight                                   int64 // events accepted or retrying
}

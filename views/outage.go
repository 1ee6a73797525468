package views

import "time"

// Outage is what keeps the queue from being as it should: a database that is away,
// or what was spooled meanwhile and is still being loaded.
type Outage struct {
	Since  time.Time // zero: the database is back, and the spool is being loaded
	Reason string    // behind "the database", such as "can't be reached"

	AsOf time.Time // of what is shown meanwhile, from a replica; zero: nothing can be

	Waiting     int64 // events and reports on this server's disk
	Used, Limit int64 // bytes of the disk's spool
	Full        bool
	Now         time.Time
}

// headline is what is wrong, and since when.
func (o Outage) headline() string {
	if o.Since.IsZero() {
		return "The database is back."
	}
	return o.began() + " (" + age(o.Now.Sub(o.Since)) + ")."
}

// lasting is the headline for a page that stays: without what changes by the second.
func (o Outage) lasting() string {
	taken := "Events and reports are still taken."
	if o.Full {
		taken = "The spool is full: nothing more is taken."
	}
	return o.began() + ". " + taken
}

func (o Outage) began() string {
	return "The database " + o.Reason + " since " + o.Since.UTC().Format("15:04:05 UTC")
}

// effect is what is still done meanwhile, and what is not.
func (o Outage) effect() string {
	waiting := count(o.Waiting, "event or report waits", "events and reports wait") + " on this server’s disk"
	switch {
	case o.Since.IsZero():
		return waiting + " and will be in the queue in a moment."
	case o.Full:
		return "The spool is full: nothing more is taken. " + upper(waiting) + ", and will be loaded when the database is back." + o.shown()
	}
	return "Events and reports are still taken: " + waiting + ", " + percent(o.Used, o.Limit) +
		" of its room, and will be loaded when the database is back. Nothing can be redriven or quarantined until then." + o.shown()
}

// shown is of when the letters on the page are.
func (o Outage) shown() string {
	if o.AsOf.IsZero() {
		return ""
	}
	return " Letters are shown from the replica, as of " + o.AsOf.UTC().Format("15:04:05 UTC") + "."
}

// Reads is where a page's letters are read: on a replica, or past it.
type Reads struct {
	Why   string        // not on the replica, in words behind "the replica"; "": on it
	Sound bool          // the lag is known
	Lag   time.Duration // how far the replica is behind
}

// text is a line for who wonders how fresh a page is.
func (r Reads) text() string {
	switch {
	case r.Why == "" && r.Lag < time.Second:
		return "Read from a replica, less than 1" + nbsp + "s behind"
	case r.Why == "":
		return "Read from a replica, " + span(r.Lag) + " behind"
	case r.Sound && r.Lag >= time.Second:
		return "Read from the primary: the replica " + r.Why + ", by " + span(r.Lag)
	}
	return "Read from the primary: the replica " + r.Why
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

package store

import "time"

// lagMeter tells how long a replica has been behind: by when the primary was first
// seen to have written what the replica has not replayed. Clocks of two machines are
// not compared, and a primary that writes nothing makes no lag.
type lagMeter struct {
	marks []mark    // not replayed, oldest first
	asOf  time.Time // what was written by then is replayed; zero: not seen yet
}

// mark is a position of the primary's, with when it was seen first.
type mark struct {
	lsn int64
	at  time.Time
}

// maxMarks bounds the marks of a replica that stands still: then two become one each
// time, so that those of the last half hour stay fine, and older ones tell a lag that
// is rather too long than too short.
const maxMarks = 4096

func (m *lagMeter) wrote(lsn int64, at time.Time) {
	if n := len(m.marks); n > 0 && m.marks[n-1].lsn == lsn {
		return
	}
	if len(m.marks) == maxMarks {
		for i := range maxMarks / 2 {
			m.marks[i] = mark{m.marks[2*i+1].lsn, m.marks[2*i].at}
		}
		m.marks = m.marks[:maxMarks/2]
	}
	m.marks = append(m.marks, mark{lsn, at})
}

func (m *lagMeter) replayed(lsn int64) {
	for len(m.marks) > 0 && m.marks[0].lsn <= lsn {
		m.asOf = m.marks[0].at
		m.marks = m.marks[1:]
	}
}

// lag is how far the replica is behind. While the primary is not seen it grows.
func (m *lagMeter) lag(now time.Time) time.Duration {
	if len(m.marks) > 0 {
		return now.Sub(m.marks[0].at)
	}
	return now.Sub(m.asOf)
}

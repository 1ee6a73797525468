package store

import (
	"testing"
	"time"
)

func TestLagIsHowLongThePrimaryHasHadWhatTheReplicaHasNot(t *testing.T) {
	t.Parallel()
	var m lagMeter
	start := time.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	for _, step := range []struct {
		second          int
		wrote, replayed int64 // 0: not seen
		lag             int
	}{
		{0, 10, 10, 0},
		{1, 10, 10, 0},   // idle
		{500, 10, 10, 0}, // for long
		{501, 20, 10, 0}, // seen just now
		{502, 30, 10, 1},
		{503, 30, 10, 2}, // idle, and behind
		{504, 30, 25, 2}, // one is replayed, the other was seen two seconds ago
		{505, 40, 30, 0},
		{506, 0, 40, 1}, // the primary is not seen: what it has since can't be told
		{507, 0, 40, 2},
		{508, 50, 50, 0},
	} {
		if step.wrote > 0 {
			m.wrote(step.wrote, at(step.second))
		}
		m.replayed(step.replayed)
		if got := m.lag(at(step.second)); got != time.Duration(step.lag)*time.Second {
			t.Errorf("second %d: %v behind, want %d s", step.second, got, step.lag)
		}
	}
}

func TestAReplicaThatStandsStillIsMeasuredInBoundedMemory(t *testing.T) {
	t.Parallel()
	var m lagMeter
	start := time.Now()
	const day = 86400
	for second := range int64(day) {
		m.wrote(second, start.Add(time.Duration(second)*time.Second))
	}
	if len(m.marks) > maxMarks {
		t.Fatalf("%d marks", len(m.marks))
	}
	now := start.Add(day * time.Second)
	if got := m.lag(now); got != day*time.Second {
		t.Errorf("%v behind", got)
	}
	for _, behind := range []time.Duration{12 * time.Hour, 30 * time.Minute, 5 * time.Second} {
		m.replayed(day - int64(behind.Seconds()))
		if got := m.lag(now); got < behind-time.Second || behind < time.Hour && got > behind+5*time.Second {
			t.Errorf("%v behind, want %v", got, behind)
		}
	}
}

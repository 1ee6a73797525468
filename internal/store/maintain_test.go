package store_test

import (
	"strings"
	"testing"
)

// TestASweepGoesThroughAFullQueueInTurns loses jobs behind the first page of a look, and
// behind the last.
func TestASweepGoesThroughAFullQueueInTurns(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	ctx := t.Context()
	const look = 50_000 // events
	jobsOf(t, s.pool, "queue-", look+2000)
	s.exec(t, "update events set received_at = now() - interval '1 hour'")
	s.exec(t, "alter table river_job disable trigger geodlq_capture_delete")
	s.exec(t, "delete from river_job where id in (select job_id from events where work_key in ('queue-5001', 'queue-7000', 'queue-50001'))")
	made, next, err := s.Sweep(ctx, 0, 0)
	if made != 2 || next == 0 || err != nil {
		t.Fatalf("first look: %d letters, then behind %d, %v", made, next, err)
	}
	made, next, err = s.Sweep(ctx, 0, next)
	if made != 1 || next != 0 || err != nil {
		t.Errorf("second look: %d letters, then behind %d, %v", made, next, err)
	}
	if n := s.number(t, "select count(*) from dead_letters where error = 'its job is gone' and context_lost"); n != 3 {
		t.Errorf("%d letters", n)
	}
}

// TestAnEventIsInFlightOrFinished: what finds events in flight goes by finished_at alone.
func TestAnEventIsInFlightOrFinished(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	jobsOf(t, s.pool, "event-", 1)
	for _, wrong := range []string{"finished_at = now()", "state = 'processed'", "state = 'dead'"} {
		_, err := s.pool.Exec(t.Context(), "update events set "+wrong)
		if err == nil || !strings.Contains(err.Error(), "events_finished_check") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	s.exec(t, "update events set state = 'dead', finished_at = now()")
}

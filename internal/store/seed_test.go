package store_test

import (
	"testing"

	"geodlq/internal/dlq"
	"geodlq/internal/pgtest"
	"geodlq/internal/store"
)

func TestSeedMakesLettersOfEveryStageClassAndStatus(t *testing.T) {
	t.Parallel()
	s := store.New(pgtest.Pool(t), nil, store.Rules{})
	if err := s.Seed(t.Context(), 25_000); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context(), dlq.Filter{Statuses: dlq.Statuses})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Total != 25_000 || stats.Located == 0 || stats.Located == stats.Total {
		t.Errorf("total %d, located %d", stats.Total, stats.Located)
	}
	for _, counts := range [][]dlq.Count{stats.ByStage, stats.ByClass, stats.ByStatus} {
		var sum int64
		for _, c := range counts {
			if c.Count == 0 {
				t.Errorf("no letter of %s", c.Name)
			}
			sum += c.Count
		}
		if sum != stats.Total {
			t.Errorf("%v sum to %d, want %d", counts, sum, stats.Total)
		}
	}
}

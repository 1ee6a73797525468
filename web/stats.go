package web

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
)

type statsAnswer struct {
	Total     int64         `json:"total"`
	Located   int64         `json:"located"`
	Unlocated int64         `json:"unlocated"`
	ByStage   []nameCount   `json:"by_stage"`
	ByClass   []nameCount   `json:"by_class"`
	ByStatus  []statusCount `json:"by_status"`
	Groups    []groupCount  `json:"groups"`
	Timeline  timeline      `json:"timeline"`
}

type nameCount struct {
	Name    string     `json:"name"`
	Count   int64      `json:"count"`
	Located int64      `json:"located"`
	Latest  *time.Time `json:"latest"`
}

type statusCount struct {
	nameCount
	MaxAttempts int `json:"max_attempts"`
}

type groupCount struct {
	Group string    `json:"group"`
	Title string    `json:"title"`
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

type timeline struct {
	BucketSeconds int      `json:"bucket_seconds"`
	Buckets       []bucket `json:"buckets"`
}

type bucket struct {
	Start   time.Time           `json:"start"`
	ByClass map[dlq.Class]int64 `json:"by_class"`
}

func (s *Server) getStats(c echo.Context) error {
	q, err := readQuery(c)
	if err != nil {
		return err
	}
	stats, err := s.store.Stats(c.Request().Context(), q.filter)
	if err != nil {
		return err
	}
	out := statsAnswer{
		Total: stats.Total, Located: stats.Located, Unlocated: stats.Total - stats.Located,
		ByStage: nameCounts(stats.ByStage), ByClass: nameCounts(stats.ByClass),
		ByStatus: make([]statusCount, len(stats.ByStatus)), Groups: []groupCount{},
		Timeline: timeline{BucketSeconds: stats.BucketSeconds, Buckets: []bucket{}},
	}
	for i, n := range nameCounts(stats.ByStatus) {
		out.ByStatus[i] = statusCount{n, stats.ByStatus[i].MaxAttempts}
	}
	for _, g := range stats.Groups {
		out.Groups = append(out.Groups, groupCount{g.Group, g.Title, g.Count, g.First.UTC(), g.Last.UTC()})
	}
	for _, b := range stats.Buckets {
		out.Timeline.Buckets = append(out.Timeline.Buckets, bucket{b.Start.UTC(), allClasses(b.ByClass)})
	}
	return answerJSON(c, http.StatusOK, mediaJSON, out)
}

func nameCounts(counts []dlq.Count) []nameCount {
	out := make([]nameCount, len(counts))
	for i, n := range counts {
		out[i] = nameCount{n.Name, n.Count, n.Located, utc(n.Latest)}
	}
	return out
}

// allClasses puts zeros in.
func allClasses(byClass map[dlq.Class]int64) map[dlq.Class]int64 {
	out := make(map[dlq.Class]int64, len(dlq.Classes))
	for _, class := range dlq.Classes {
		out[class] = byClass[class]
	}
	return out
}

package web

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"geodlq/internal/dlq"
	"geodlq/views"
)

// maxLedgerRows bounds an answer; who asks for more is told to narrow down.
const maxLedgerRows = 10_000

// ledgerAnswer is the answer to GET /v1/ledger.
type ledgerAnswer struct {
	Days       []ledgerDay      `json:"days"`
	Totals     ledgerCounts     `json:"totals"`
	CheckedAt  *time.Time       `json:"checked_at"`
	Mismatches []ledgerMismatch `json:"mismatches"`
}

type ledgerDay struct {
	Day    string `json:"day"`
	Source string `json:"source"`
	ledgerCounts
}

type ledgerCounts struct {
	Received        int64         `json:"received"`
	Processed       int64         `json:"processed"`
	Dead            int64         `json:"dead"`
	InFlight        int64         `json:"in_flight"`
	Duplicates      int64         `json:"duplicates"`
	Spooled         int64         `json:"spooled"`
	Reports         int64         `json:"reports"`
	ReportsRepeated int64         `json:"reports_repeated"`
	Refused         map[int]int64 `json:"refused"`
	AddsUp          bool          `json:"adds_up"`
}

type ledgerMismatch struct {
	Day    string `json:"day"`
	Source string `json:"source"`
	Column string `json:"column"`
	Ledger int64  `json:"ledger"`
	Tables int64  `json:"tables"`
}

func ledgerCountsOf(d *dlq.LedgerDay, addsUp bool) ledgerCounts {
	return ledgerCounts{
		Received: d.Received, Processed: d.Processed, Dead: d.Dead, InFlight: d.InFlight, Duplicates: d.Duplicates, Spooled: d.Spooled,
		Reports: d.Reports, ReportsRepeated: d.ReportsRepeated, Refused: d.Refused, AddsUp: addsUp,
	}
}

func (s *Server) getLedger(c echo.Context) error {
	l, _, err := s.wholeLedger(c)
	if err != nil {
		return err
	}
	out := ledgerAnswer{Days: make([]ledgerDay, len(l.Days)), Mismatches: []ledgerMismatch{}}
	all := l.Totals.Sum() == l.Totals.Received
	for i := range l.Days {
		d := &l.Days[i]
		addsUp := l.AddsUp(d)
		all = all && addsUp
		out.Days[i] = ledgerDay{d.Day.Format(time.DateOnly), d.Source, ledgerCountsOf(d, addsUp)}
	}
	if l.Check != nil {
		out.CheckedAt = utc(&l.Check.CheckedAt)
		for _, m := range l.Check.Mismatches {
			out.Mismatches = append(out.Mismatches, ledgerMismatch{m.Day.Format(time.DateOnly), m.Source, m.Column, m.Ledger, m.Tables})
		}
	}
	out.Totals = ledgerCountsOf(&l.Totals, all)
	return answerJSON(c, http.StatusOK, mediaJSON, out)
}

// wholeLedger is all that a request asks for, or none of it.
func (s *Server) wholeLedger(c echo.Context) (*dlq.Ledger, dlq.LedgerQuery, error) {
	l, q, err := s.readLedger(c, maxLedgerRows)
	if err != nil {
		return nil, q, err
	}
	if l.Rows > int64(len(l.Days)) {
		return nil, q, dlq.BadRequest("since", "selects %d rows, of which an answer holds %d: ask for fewer days, or name the sources", l.Rows, maxLedgerRows)
	}
	return l, q, nil
}

func (s *Server) readLedger(c echo.Context, limit int) (*dlq.Ledger, dlq.LedgerQuery, error) {
	q, err := dlq.ParseLedgerQuery(c.QueryParams(), time.Now())
	if err != nil {
		return nil, q, err
	}
	l, err := s.store.Ledger(c.Request().Context(), q, limit)
	if err != nil {
		return nil, q, err
	}
	l.AddSpooled(q, s.door.Spooled())
	return l, q, nil
}

// ledgerCSV is the ledger for a spreadsheet, to hold a producer's count against.
func (s *Server) ledgerCSV(c echo.Context) error {
	l, _, err := s.wholeLedger(c)
	if err != nil {
		return err
	}
	statuses := l.RefusedStatuses()
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	w.UseCRLF = true // RFC 4180
	head := []string{"day", "source", "received", "processed", "dead", "in_flight", "duplicates", "spooled", "reports", "reports_repeated"}
	for _, status := range statuses {
		head = append(head, "refused_"+strconv.Itoa(status))
	}
	_ = w.Write(append(head, "adds_up"))
	for i := range l.Days {
		d := &l.Days[i]
		row := []string{d.Day.Format(time.DateOnly), harmless(d.Source)}
		for _, n := range slices.Concat(
			[]int64{d.Received, d.Processed, d.Dead, d.InFlight, d.Duplicates, d.Spooled, d.Reports, d.ReportsRepeated},
			refusedIn(d, statuses)) {
			row = append(row, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(row, strconv.FormatBool(l.AddsUp(d))))
	}
	w.Flush()
	c.Response().Header().Set("Content-Disposition", `attachment; filename="ledger.csv"`)
	return c.Blob(http.StatusOK, "text/csv; charset=utf-8; header=present", out.Bytes())
}

func refusedIn(d *dlq.LedgerDay, statuses []int) []int64 {
	out := make([]int64, len(statuses))
	for i, status := range statuses {
		out[i] = d.Refused[status]
	}
	return out
}

// ledgerRows bounds the rows of the page; its totals are of all.
const ledgerRows = 500

func (s *Server) pageLedger(c echo.Context) error {
	l, q, err := s.readLedger(c, ledgerRows)
	if err != nil {
		return err
	}
	return servePage(c, http.StatusOK, views.Ledger(views.LedgerPage{Ledger: *l, Query: q, Now: time.Now(), Outage: s.outage()}))
}

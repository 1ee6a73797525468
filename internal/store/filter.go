package store

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// where is the one predicate: a Filter as a condition over dead_letters d, with
// its arguments. Whatever reads or changes letters by a filter calls it.
func where(f dlq.Filter) (string, pgx.NamedArgs) {
	w := &predicate{args: pgx.NamedArgs{}}
	if len(f.Statuses) == 0 {
		// The words of the partial index, so that the planner can use it.
		w.add("d.status in ('pending', 'redriving', 'quarantined')")
	}
	if len(f.Statuses) < len(dlq.Statuses) { // all of them are no condition
		anyOf(w, "d.status", f.Statuses)
	}
	anyOf(w, "d.stage", f.Stages)
	anyOf(w, "d.class", f.Classes)
	anyOf(w, "d.task", f.Tasks)
	anyOf(w, "d.source", f.Sources)
	anyOf(w, "d.fingerprint", f.Groups)
	anyOf(w, "d.src_crs", f.CRSs)
	anyOf(w, "d.code_version", f.CodeVersion)
	anyOf(w, "d.located_by", f.LocatedBy)
	anyOf(w, "d.work_key", f.WorkKeys)
	if f.Since != nil {
		w.add("d.failed_at >= " + w.arg(*f.Since))
	}
	if f.Until != nil {
		w.add("d.failed_at < " + w.arg(*f.Until))
	}
	if f.Located != nil {
		w.add("(d.anchor is not null) = " + w.arg(*f.Located))
	}
	if f.BBox != nil {
		w.add(w.box(*f.BBox))
	}
	if f.Query != "" {
		pattern := w.arg("%" + likeEscaper.Replace(f.Query) + "%")
		w.add("(d.error ilike " + pattern + " or d.work_key ilike " + pattern + ")")
	}
	for _, p := range f.Props {
		w.add(w.prop(p))
	}
	if len(w.conds) == 0 {
		return "true", w.args
	}
	return strings.Join(w.conds, " and "), w.args
}

var likeEscaper = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

type predicate struct {
	conds []string
	args  pgx.NamedArgs
}

func (w *predicate) add(cond string) { w.conds = append(w.conds, cond) }

func (w *predicate) arg(value any) string {
	name := "f" + strconv.Itoa(len(w.args))
	w.args[name] = value
	return "@" + name
}

func anyOf[T ~string](w *predicate, column string, values []T) {
	if len(values) == 0 {
		return
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	w.add(column + " = any(" + w.arg(texts) + "::text[])")
}

// box matches anchors, edges included. The operator && alone compares boxes of
// rounded floats, so the ordinates are compared too.
func (w *predicate) box(b dlq.Box) string {
	south, north := w.arg(b.South), w.arg(b.North)
	latitude := "ST_Y(d.anchor) between " + south + " and " + north
	span := func(west, east string) string {
		return "(d.anchor && ST_MakeEnvelope(" + west + ", " + south + ", " + east + ", " + north + ", 4326)" +
			" and ST_X(d.anchor) between " + west + " and " + east + " and " + latitude + ")"
	}
	west, east := w.arg(b.West), w.arg(b.East)
	if b.West <= b.East {
		return span(west, east)
	}
	return "(" + span(west, "180") + " or " + span("-180", east) + ")"
}

// prop compares a value of a JSON column by its text.
func (w *predicate) prop(p dlq.Prop) string {
	column := map[string]string{"params": "d.params", "labels": "d.labels", "payload": "d.payload_json"}[p.Root]
	return column + " #>> " + w.arg(p.Path) + "::text[] = " + w.arg(p.Value)
}

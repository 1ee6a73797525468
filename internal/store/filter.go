package store

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// names are what letters are counted by. Letters of the same names are of one facet.
type names struct {
	Class       dlq.Class
	Stage       dlq.Stage
	Status      dlq.Status
	Source      string
	Task        string
	Fingerprint string
	LocatedBy   dlq.LocatedBy
	Located     bool
}

// facetNamesSQL selects names from dead_letters d.
const facetNamesSQL = `select d.class, d.stage, d.status, d.source, d.task, d.fingerprint, d.located_by,
	d.anchor is not null as located from dead_letters d`

// A dimension is a name with what a filter selects of it, as a column for SQL and
// as a value for counts.
type dimension struct {
	column    string
	selection func(*dlq.Filter) []string // none: any
	name      func(*names) string
}

var (
	byStatus = dimension{"d.status",
		func(f *dlq.Filter) []string {
			switch len(f.Statuses) {
			case 0:
				return texts(dlq.OpenStatuses)
			case len(dlq.Statuses): // all of them are no condition
				return nil
			}
			return texts(f.Statuses)
		},
		func(n *names) string { return string(n.Status) }}
	byStage = dimension{"d.stage",
		func(f *dlq.Filter) []string { return texts(f.Stages) }, func(n *names) string { return string(n.Stage) }}
	byClass = dimension{"d.class",
		func(f *dlq.Filter) []string { return texts(f.Classes) }, func(n *names) string { return string(n.Class) }}
	byTask = dimension{"d.task",
		func(f *dlq.Filter) []string { return f.Tasks }, func(n *names) string { return n.Task }}
	bySource = dimension{"d.source",
		func(f *dlq.Filter) []string { return f.Sources }, func(n *names) string { return n.Source }}
	byGroup = dimension{"d.fingerprint",
		func(f *dlq.Filter) []string { return f.Groups }, func(n *names) string { return n.Fingerprint }}
	byLocatedBy = dimension{"d.located_by",
		func(f *dlq.Filter) []string { return texts(f.LocatedBy) }, func(n *names) string { return string(n.LocatedBy) }}

	dimensions = []*dimension{&byStatus, &byStage, &byClass, &byTask, &bySource, &byGroup, &byLocatedBy}
)

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// matcher is what a filter asks of names.
type matcher struct {
	located    *bool
	selections []selection
}

type selection struct {
	*dimension
	bit    uint16
	values []string
}

// match is what a filter asks of names.
func match(f *dlq.Filter) *matcher {
	m := &matcher{located: f.Located}
	for _, d := range dimensions {
		if values := d.selection(f); len(values) > 0 {
			m.selections = append(m.selections, selection{d, d.bit(), values})
		}
	}
	return m
}

// bit stands for a dimension in a set of them; that of nil for none.
func (d *dimension) bit() uint16 {
	if i := slices.Index(dimensions, d); i >= 0 {
		return 1 << i
	}
	return 0
}

// notLocated stands beside the dimensions for Filter.Located.
const notLocated = 1 << 15

// fails is the set of what is asked of names that these do not pass.
func (m *matcher) fails(n *names) (set uint16) {
	if m.located != nil && *m.located != n.Located {
		set = notLocated
	}
	for _, s := range m.selections {
		if !slices.Contains(s.values, s.name(n)) {
			set |= s.bit
		}
	}
	return set
}

// selects reports whether letters of such names are selected, as far as names
// decide.
func (m *matcher) selects(n *names) bool { return m.fails(n) == 0 }

// countable reports whether names and time decide what a filter selects: then
// counts answer for it, and else the letters' rows.
func countable(f dlq.Filter) bool {
	return f.BBox == nil && f.Query == "" && len(f.CRSs)+len(f.CodeVersion)+len(f.Props)+len(f.WorkKeys) == 0
}

// where is the one predicate: a Filter as a condition over dead_letters d, with
// its arguments. Whatever reads or changes letters by a filter calls it; what counts
// them by their names goes by the same dimensions.
func where(f dlq.Filter) (string, pgx.NamedArgs) {
	w := &predicate{args: pgx.NamedArgs{}}
	for _, d := range dimensions {
		if d == &byStatus && len(f.Statuses) == 0 {
			// The words of the partial index, so that the planner can use it.
			w.add("d.status in ('pending', 'redriving', 'quarantined')")
			continue
		}
		anyOf(w, d.column, d.selection(&f))
	}
	anyOf(w, "d.src_crs", f.CRSs)
	anyOf(w, "d.code_version", f.CodeVersion)
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

func anyOf(w *predicate, column string, values []string) {
	if len(values) > 0 {
		w.add(column + " = any(" + w.arg(values) + "::text[])")
	}
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

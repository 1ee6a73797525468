package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// LostLetter is a letter of which only its job is known.
type LostLetter struct {
	ID      int64
	EventID int64
}

// LostLetters are letters whose context was lost and has not been sought, of which
// the bytes are kept.
func (s *Store) LostLetters(ctx context.Context, limit int) ([]LostLetter, error) {
	rows, _ := s.pool.Query(ctx, `select id, event_id from dead_letters
		where context_lost and not context_sought and event_id is not null order by id limit $1`, limit)
	lost, err := pgx.CollectRows(rows, pgx.RowToStructByName[LostLetter])
	if err != nil {
		return nil, fmt.Errorf("lost letters: %w", err)
	}
	return lost, nil
}

// FillContext gives a letter what its bytes told: stage, class, error, group and
// place, where they fail by themselves; the place and the group alone, where they
// pass and only the sink could tell more. A letter that failed anew meanwhile is
// left alone.
func (s *Store) FillContext(ctx context.Context, letterID int64, f *dlq.Failure) error {
	found := f.Stage != dlq.StageDownstream
	args := pgx.NamedArgs{
		"id": letterID, "found": found, "stage": f.Stage, "class": f.Class, "error": f.Error, "stack": f.Stack,
		"fingerprint": f.Fingerprint, "wkb": f.WKB, "lon": nil, "lat": nil, "flaw_lon": nil, "flaw_lat": nil, "src_crs": f.SrcCRS,
	}
	if f.Anchor != nil {
		args["lon"], args["lat"] = f.Anchor[0], f.Anchor[1]
	}
	if f.InvalidAt != nil {
		args["flaw_lon"], args["flaw_lat"] = f.InvalidAt[0], f.InvalidAt[1]
	}
	_, err := s.pool.Exec(ctx, `
		with place as (
			select g, geodlq_simplified(g) as small, ST_SetSRID(ST_MakePoint(@lon::float8, @lat::float8), 4326) as anchor,
				ST_SetSRID(ST_MakePoint(@flaw_lon::float8, @flaw_lat::float8), 4326) as flaw
			from (select geodlq_geometry(@wkb::bytea) as g) q
		), filled as (
			update dead_letters d set context_sought = true, version = d.version + 1,
				context_lost = not @found::boolean,
				stage = case when @found then @stage else d.stage end, class = case when @found then @class else d.class end,
				error = case when @found then @error else d.error end, stack = case when @found then @stack else d.stack end,
				fingerprint = case when @found then @fingerprint else d.fingerprint end,
				src_crs = coalesce(nullif(@src_crs, ''), d.src_crs), invalid_at = coalesce(p.flaw, d.invalid_at),
				geom = coalesce(p.small, d.geom), geom_hash = coalesce(geodlq_geom_hash(p.g), d.geom_hash),
				geom_simplified = case when p.g is null then d.geom_simplified else ST_NPoints(p.small) <> ST_NPoints(p.g) end,
				anchor = case when p.g is null then d.anchor else p.anchor end,
				located_by = case when p.g is null or p.anchor is null then d.located_by else 'geometry' end
			from place p where d.id = @id and d.context_lost and not d.context_sought
			returning d.id, d.status
		)
		insert into dead_letter_history (letter_id, actor, action, from_status, to_status, reason)
		select id, 'geodlq', 'examined', status, status, case when @found then left(@error, 500) else 'the bytes pass every stage before the sink' end from filled`, args)
	if err != nil {
		return fmt.Errorf("context of letter %d: %w", letterID, err)
	}
	return nil
}

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"geodlq/internal/dlq"
)

// reportSQL writes or renews the letter of a reported geotask. A report of a
// replayed letter reopens it; of a redriving one it ends that run; quarantined
// and abandoned ones are counted and stay.
const reportSQL = `
insert into dead_letters as d (
	work_key, kind, task, source, code_version, run_id, host, trace_id, log_url, labels,
	stage, class, error, stack, http_status, exit_code, fingerprint, context_lost,
	geom, geom_simplified, anchor, located_by, source_wkb, source_geometry, src_crs, geom_hash, tile_z, tile_x, tile_y, bounds,
	payload, blob, payload_json, media_type, size, sha256, params, payload_ref, event_time, first_failed_at, failed_at)
select @work_key, 'geotask', @task, @source, @code_version, @run_id, @host, @trace_id, @log_url, @labels::jsonb,
	@stage, @class, @error, @stack, @http_status::int, @exit_code::bigint, @fingerprint, false,
	small, coalesce(ST_NPoints(small) <> ST_NPoints(g), false), case when g is not null then ST_SetSRID(ST_MakePoint(@lon::float8, @lat::float8), 4326) end,
	case when g is not null then @located_by::text else 'none' end,
	@source_wkb::bytea, @source_geometry::text, @src_crs, coalesce(geodlq_geom_hash(g), ''),
	@tile_z::smallint, @tile_x::int, @tile_y::int, @bounds::float8[],
	@payload::bytea, @blob::text, geodlq_json(@payload::bytea, @media_type), @media_type, @size::bigint, @sha256::bytea,
	@params::jsonb, @payload_ref::jsonb, @event_time::timestamptz, at, at
from (select coalesce(@received_at::timestamptz, now()) as at) t, (select g, geodlq_simplified(g) as small from (select geodlq_geometry(case when @placed_as_sent::boolean then @source_wkb::bytea else @wkb::bytea end) as g) q) p
on conflict (work_key) do update set
	task = excluded.task, code_version = excluded.code_version, run_id = excluded.run_id, host = excluded.host,
	trace_id = excluded.trace_id, log_url = excluded.log_url, labels = excluded.labels,
	stage = excluded.stage, class = excluded.class, error = excluded.error, stack = excluded.stack,
	http_status = excluded.http_status, exit_code = excluded.exit_code, fingerprint = excluded.fingerprint,
	geom_simplified = case when excluded.geom is null then d.geom_simplified else excluded.geom_simplified end,
	geom = coalesce(excluded.geom, d.geom), anchor = coalesce(excluded.anchor, d.anchor),
	located_by = case when excluded.anchor is null then d.located_by else excluded.located_by end,
	geom_hash = coalesce(nullif(excluded.geom_hash, ''), d.geom_hash),
	source_wkb = coalesce(excluded.source_wkb, d.source_wkb),
	source_geometry = coalesce(excluded.source_geometry, d.source_geometry),
	src_crs = coalesce(nullif(excluded.src_crs, ''), d.src_crs),
	tile_z = coalesce(excluded.tile_z, d.tile_z), tile_x = coalesce(excluded.tile_x, d.tile_x),
	tile_y = coalesce(excluded.tile_y, d.tile_y), bounds = coalesce(excluded.bounds, d.bounds),
	(payload, blob, payload_json, media_type, size, sha256) = (select
		case when d.event_id is null then p.payload end, case when d.event_id is null then p.blob end,
		p.payload_json, p.media_type, p.size, p.sha256
		from (values
			(true, excluded.payload, excluded.blob, excluded.payload_json, excluded.media_type, excluded.size, excluded.sha256),
			(false, d.payload, d.blob, d.payload_json, d.media_type, d.size, d.sha256))
			p (sent, payload, blob, payload_json, media_type, size, sha256)
		where p.sent = (excluded.sha256 is not null and d.event_id is null)),
	params = excluded.params, payload_ref = coalesce(excluded.payload_ref, d.payload_ref),
	event_time = coalesce(excluded.event_time, d.event_time),
	failed_at = greatest(d.failed_at, excluded.failed_at),
	attempts = d.attempts + 1,
	redrives = d.redrives + (d.status = 'redriving' and d.kind = 'geotask')::int,
	status = case
		when d.status = 'redriving' and d.kind = 'geotask' and d.redrives + 1 >= @cap::int then 'quarantined'
		when d.status = 'redriving' and d.kind = 'geotask' then 'pending'
		when d.status = 'replayed' then 'pending'
		else d.status end,
	resolved_at = case when d.status = 'abandoned' then d.resolved_at end,
	version = d.version + 1
returning id, attempts, kind, status, blob, (xmax = 0) as created`

// Report counts the failure of a geotask: it makes its letter, or adds an attempt
// to it. A report whose key was counted already changes nothing; ErrConflict
// where that key named another unit.
func (s *Store) Report(ctx context.Context, r *dlq.Report) (*dlq.ReportReceipt, error) {
	blobs, err := s.putLarge(ctx, [][]byte{r.Payload})
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	receipt, err := s.report(ctx, r, blobs[0])
	if errors.Is(err, errCountedMeanwhile) {
		return s.Report(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return receipt, nil
}

// report counts a report whose payload is in the bucket already, if blob is not nil.
// Which blob no row refers to then, this one or the letter's older one, is released.
func (s *Store) report(ctx context.Context, r *dlq.Report, blob *string) (*dlq.ReportReceipt, error) {
	receipt := &dlq.ReportReceipt{WorkKey: r.WorkKey}
	unused := blob
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if r.ReportKey != "" {
			counted, err := countedReport(ctx, tx, r, receipt)
			if err != nil {
				return err
			}
			if counted && receipt.Replay {
				return nil
			}
			if counted {
				return ledgerReport(ctx, tx, r, true)
			}
		}
		var err error
		if unused, err = s.countReport(ctx, tx, r, blob, receipt); err != nil {
			return err
		}
		return ledgerReport(ctx, tx, r, false)
	})
	if err != nil {
		s.releaseUncommitted(ctx, []*string{blob}, err)
		return nil, err
	}
	s.release(ctx, []*string{unused})
	return receipt, nil
}

// ErrReportKeyTaken: the key of a report names one of another work key.
var ErrReportKeyTaken = dlq.Conflict("this Idempotency-Key was used for a report of another work key")

// errCountedMeanwhile: the same report was counted by another connection, and
// what this one wrote is rolled back.
var errCountedMeanwhile = errors.New("report counted meanwhile")

func countedReport(ctx context.Context, tx pgx.Tx, r *dlq.Report, receipt *dlq.ReportReceipt) (bool, error) {
	var workKey string
	var countedAt time.Time
	err := tx.QueryRow(ctx, `select d.id, d.attempts, d.work_key, p.received_at from reports p join dead_letters d on d.id = p.letter_id
		where p.report_key = $1`, r.ReportKey).Scan(&receipt.LetterID, &receipt.Attempts, &workKey, &countedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if workKey != r.WorkKey {
		return false, ErrReportKeyTaken
	}
	receipt.Duplicate = true
	receipt.Replay = countedAt.Equal(r.ReceivedAt)
	return true, nil
}

// countReport returns the blob that no row refers to once it is committed.
func (s *Store) countReport(ctx context.Context, tx pgx.Tx, r *dlq.Report, blob *string, receipt *dlq.ReportReceipt) (unused *string, err error) {
	var was dlq.Status
	var before, after *string
	err = tx.QueryRow(ctx, "select status, blob from dead_letters where work_key = $1 for update", r.WorkKey).Scan(&was, &before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	var kind dlq.Kind
	var status dlq.Status
	err = tx.QueryRow(ctx, reportSQL, reportArgs(r, blob, s.rules.RedriveCap)).
		Scan(&receipt.LetterID, &receipt.Attempts, &kind, &status, &after, &receipt.Created)
	if err != nil {
		return nil, err
	}
	if was == dlq.StatusReplayed && kind == dlq.KindEvent {
		if err := reopenEvent(ctx, tx, receipt.LetterID); err != nil {
			return nil, err
		}
	}
	if r.ReportKey != "" {
		tag, err := tx.Exec(ctx, `insert into reports (report_key, letter_id, received_at) values ($1, $2, coalesce($3, now()))
			on conflict do nothing`, r.ReportKey, receipt.LetterID, receivedAt(r))
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() == 0 {
			return nil, errCountedMeanwhile
		}
	}
	switch {
	case blob != nil && (after == nil || *after != *blob):
		unused = blob
	case before != nil && (after == nil || *after != *before):
		unused = before
	}
	return unused, addHistory(ctx, tx, receipt.LetterID, r.Source, "reported", was, status, r.Error, nil)
}

// receivedAt is nil for a report that is only just received.
func receivedAt(r *dlq.Report) *time.Time {
	if r.ReceivedAt.IsZero() {
		return nil
	}
	return &r.ReceivedAt
}

func reportArgs(r *dlq.Report, blob *string, cap int) pgx.NamedArgs {
	args := pgx.NamedArgs{
		"work_key": r.WorkKey, "task": r.Task, "source": r.Source, "code_version": r.CodeVersion, "run_id": r.RunID,
		"host": r.Host, "trace_id": r.TraceID, "log_url": r.LogURL, "labels": objectOr(r.Labels),
		"stage": r.Stage, "class": r.Class, "error": r.Error, "stack": r.Traceback,
		"http_status": r.HTTPStatus, "exit_code": r.ExitCode,
		"fingerprint": dlq.Fingerprint(r.Stage, r.Class, r.Task, r.Error),
		"wkb":         r.WKB, "placed_as_sent": false, "lon": nil, "lat": nil, "located_by": r.LocatedBy,
		"source_wkb": r.SourceWKB, "source_geometry": nil, "src_crs": r.SrcCRS,
		"tile_z": nil, "tile_x": nil, "tile_y": nil, "bounds": r.Bounds,
		"payload": r.Payload, "blob": blob, "media_type": r.MediaType, "size": len(r.Payload), "sha256": nil,
		"params": objectOr(r.Params), "payload_ref": nil, "event_time": r.EventTime, "cap": cap, "received_at": receivedAt(r),
	}
	if len(r.WKB) > 0 && len(r.SourceWKB) > 0 && &r.WKB[0] == &r.SourceWKB[0] {
		args["placed_as_sent"], args["wkb"] = true, nil
	}
	if r.Anchor != nil {
		args["lon"], args["lat"] = r.Anchor[0], r.Anchor[1]
	}
	if r.SourceGeometry != "" {
		args["source_geometry"] = r.SourceGeometry
	}
	if r.Tile != nil {
		args["tile_z"], args["tile_x"], args["tile_y"] = r.Tile.Z, r.Tile.X, r.Tile.Y
	}
	if r.Payload != nil {
		sum := sha256.Sum256(r.Payload)
		args["sha256"] = sum[:]
	}
	if blob != nil {
		args["payload"] = nil
	}
	if r.PayloadRef != nil {
		args["payload_ref"] = string(r.PayloadRef)
	}
	return args
}

func objectOr(object []byte) string {
	if len(object) == 0 {
		return "{}"
	}
	return string(object)
}

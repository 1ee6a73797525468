-- Capture: the functions and triggers that turn a River job that failed for good
-- into one dead letter. Applied anew by every migrate, since a full migration of
-- River down and up drops the triggers in silence.

-- WKB to a geometry in EPSG:4326, or null: the write of a letter never fails on
-- bad data.
create or replace function geodlq_geometry(wkb bytea) returns geometry
language plpgsql immutable parallel safe strict as $$
begin
    return ST_SetSRID(ST_GeomFromWKB(wkb), 4326);
exception when others then
    return null;
end $$;

-- A geometry for looking at: a large one is thinned out to some sixty points, so that
-- rows stay small however large what failed was. A letter's own page draws its payload
-- beside it. It is never replayed from.
create or replace function geodlq_simplified(g geometry) returns geometry
language plpgsql immutable parallel safe strict as $$
declare
    s geometry := g;
    tolerance double precision;
begin
    if ST_NPoints(g) <= 256 then
        return g;
    end if;
    tolerance := greatest(ST_XMax(g) - ST_XMin(g), ST_YMax(g) - ST_YMin(g)) / 2000;
    for i in 1..14 loop
        s := coalesce(ST_Simplify(s, tolerance, true), s);
        exit when ST_NPoints(s) <= 64;
        tolerance := tolerance * 1.5;
    end loop;
    if ST_NPoints(s) > 1000 then
        return ST_Envelope(g); -- of many parts, each of which would stay
    end if;
    return s;
exception when others then
    return ST_Envelope(g);
end $$;

-- SHA-256, in hexadecimal, of the geometry's normalised little-endian WKB.
create or replace function geodlq_geom_hash(g geometry) returns text
language plpgsql immutable parallel safe strict as $$
begin
    return encode(sha256(ST_AsBinary(ST_Normalize(g), 'NDR')), 'hex');
exception when others then
    return encode(sha256(ST_AsBinary(g, 'NDR')), 'hex');
end $$;

-- Small JSON for queries beside the exact bytes, or null where it can't be had.
create or replace function geodlq_json(body bytea, media_type text) returns jsonb
language plpgsql immutable parallel safe as $$
begin
    if body is null or octet_length(body) > 16384 or media_type not like '%json%' then
        return null;
    end if;
    return convert_from(body, 'UTF8')::jsonb;
exception when others then
    return null;
end $$;

create or replace function geodlq_point(ordinates jsonb) returns geometry
language sql immutable parallel safe strict as $$
    select ST_SetSRID(ST_MakePoint((ordinates->>0)::double precision, (ordinates->>1)::double precision), 4326)
$$;

-- The bytes of an event: its own, or its range of the parent's; null where they lie
-- in the bucket.
create or replace function geodlq_body(e events) returns bytea
language sql stable parallel safe as $$
    select case when e.span_start is null then e.body
           else (select substring(p.body from e.span_start + 1 for e.span_end - e.span_start)
                 from events p where p.id = e.parent_id) end
$$;

-- Ends the event that the job owns, and writes or renews its letter. Returns the
-- letter's id; null when the fence did not hold: the event was processed, is dead
-- already, or has another job.
--
-- output is what the worker recorded of the failure (dlq.Failure); where it is
-- missing the context is lost, and only what the job itself tells is known.
-- redrive is {letter_id, cap, backoff_seconds} where the job is one.
--
-- River's connections plan every statement anew, which here would cost more than all
-- the rest. Each is a look-up by a unique key: one plan serves for good, as long as it
-- is not made for a table that was empty.
create or replace function geodlq_capture(p_job_id bigint, output jsonb, redrive jsonb, fallback text, at timestamptz)
returns bigint
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    e     events;
    lost  boolean := coalesce(output->>'stage', '') = '';
    body  bytea;
    g     geometry;
    small geometry;
    l     dead_letters;
    was   text;
    cap   integer := coalesce((redrive->>'cap')::integer, 5);
    pause interval := make_interval(secs => coalesce((redrive->>'backoff_seconds')::double precision, 0));
begin
    update events set state = 'dead', finished_at = at,
           tries = least(coalesce((output->>'tries')::integer, 1), 32767)
    where job_id = p_job_id and state in ('accepted', 'retrying')
    returning * into e;
    if not found then
        return null;
    end if;

    body := geodlq_body(e);
    if (output->>'wkb_stored')::boolean then
        delete from failure_geometries f where f.job_id = p_job_id returning geodlq_geometry(f.wkb) into g;
    else
        g := geodlq_geometry(decode(output->>'wkb', 'base64'));
    end if;

    small := geodlq_simplified(g);

    select status into was from dead_letters where work_key = e.work_key for update;

    insert into dead_letters as d (
        work_key, kind, event_id, task, source,
        stage, class, error, stack, http_status, exit_code, fingerprint, tries, outcome_unknown, context_lost,
        geom, geom_simplified, anchor, located_by, src_crs, geom_hash, invalid_at,
        payload_json, media_type, size, sha256, first_failed_at, failed_at)
    values (
        e.work_key, 'event', e.id, e.task, e.source,
        coalesce(output->>'stage', 'downstream'), coalesce(output->>'class', 'unknown'),
        left(coalesce(output->>'error', fallback), 2000), left(coalesce(output->>'stack', ''), 8000),
        (output->>'http_status')::integer, (output->>'exit_code')::bigint,
        coalesce(output->>'fingerprint', 'context-lost'),
        coalesce((output->>'tries')::integer, 1),
        coalesce((output->>'outcome_unknown')::boolean, false), lost,
        small, coalesce(ST_NPoints(small) <> ST_NPoints(g), false), case when g is not null then geodlq_point(output->'anchor') end,
        case when g is not null and output ? 'anchor' then 'geometry' else 'none' end,
        coalesce(output->>'src_crs', e.claimed_crs), coalesce(geodlq_geom_hash(g), ''),
        geodlq_point(output->'invalid_at'),
        geodlq_json(body, e.media_type), e.media_type, e.size, e.sha256, at, at)
    on conflict (work_key) do update set
        kind = 'event', event_id = excluded.event_id,
        stage = excluded.stage, class = excluded.class, error = excluded.error, stack = excluded.stack,
        http_status = excluded.http_status, exit_code = excluded.exit_code, fingerprint = excluded.fingerprint, tries = excluded.tries,
        outcome_unknown = excluded.outcome_unknown or d.outcome_unknown, context_lost = excluded.context_lost,
        context_sought = false,
        geom_simplified = case when excluded.geom is null then d.geom_simplified else excluded.geom_simplified end,
        geom = coalesce(excluded.geom, d.geom), anchor = coalesce(excluded.anchor, d.anchor),
        located_by = case when excluded.anchor is null then d.located_by else excluded.located_by end,
        geom_hash = coalesce(nullif(excluded.geom_hash, ''), d.geom_hash),
        src_crs = excluded.src_crs, invalid_at = excluded.invalid_at,
        payload = null, blob = null, -- of a report: the event's bytes are the letter's now
        payload_json = excluded.payload_json, media_type = excluded.media_type,
        size = excluded.size, sha256 = excluded.sha256,
        failed_at = excluded.failed_at,
        attempts = d.attempts + 1,
        redrives = d.redrives + (d.status = 'redriving')::integer,
        not_before = case when d.status = 'redriving' then at + pause * (d.redrives + 1) else d.not_before end,
        status = case
            when d.status = 'redriving' and d.redrives + 1 >= cap then 'quarantined'
            when d.status in ('redriving', 'replayed') then 'pending'
            else d.status end,
        reason = case when d.status = 'redriving' and d.redrives + 1 >= cap
            then format('%s redrives failed', d.redrives + 1) else d.reason end,
        resolved_at = case when d.status = 'abandoned' then d.resolved_at end,
        version = d.version + 1
    returning * into l;

    insert into dead_letter_history (letter_id, at, actor, action, from_status, to_status, reason, job_id)
    values (l.id, at, 'geodlq', case when was is null then 'dead_lettered' else 'failed_again' end,
            coalesce(was, ''), l.status, left(l.error, 500), p_job_id);
    if was = 'redriving' then
        update redrive_letters r set state = case when l.status = 'quarantined' then 'quarantined' else 'failed' end,
            outcome = left(l.error, 500), ended_at = at
        where r.job_id = p_job_id;
    end if;
    return l.id;
end $$;

-- Never raises: one raising row would stall the client's whole batch of
-- completions. What fails here is found by the sweeper.
create or replace function geodlq_on_job() returns trigger
language plpgsql as $$
declare
    job      river_job := case when tg_op = 'DELETE' then old else new end;
    fallback text;
begin
    begin
        fallback := case
            when tg_op = 'DELETE' then 'the job was deleted before it ended'
            else coalesce(job.errors[cardinality(job.errors)]->>'error', 'the job ended as ' || job.state || ' without an error')
        end;
        perform geodlq_capture(job.id, job.metadata->'output', job.metadata->'redrive', fallback,
                               coalesce(job.finalized_at, now()));
    exception when others then
        raise warning 'geodlq: job % was not captured (%); the sweeper will', job.id, sqlstate;
    end;
    return null;
end $$;

drop trigger if exists geodlq_capture_update on river_job;
create trigger geodlq_capture_update after update of state on river_job
    for each row when (new.kind = 'process_event' and new.state in ('discarded', 'cancelled')
                       and old.state is distinct from new.state)
    execute function geodlq_on_job();

drop trigger if exists geodlq_capture_insert on river_job;
create trigger geodlq_capture_insert after insert on river_job
    for each row when (new.kind = 'process_event' and new.state in ('discarded', 'cancelled'))
    execute function geodlq_on_job();

drop trigger if exists geodlq_capture_delete on river_job;
create trigger geodlq_capture_delete after delete on river_job
    for each row when (old.kind = 'process_event' and old.state not in ('completed', 'discarded', 'cancelled'))
    execute function geodlq_on_job();

-- A geometry in the coordinates of a tile (an envelope in EPSG:3857), clipped, or
-- null where it can't be drawn. It is cut to the square world first: a latitude
-- beyond it makes ST_Transform raise, and with it the whole tile.
create or replace function geodlq_shape(g geometry, tile geometry) returns geometry
language plpgsql immutable parallel safe strict as $$
begin
    if ST_YMin(g) < -85.06 or ST_YMax(g) > 85.06 or ST_XMin(g) < -180 or ST_XMax(g) > 180 then
        g := ST_ClipByBox2D(g, ST_MakeEnvelope(-180, -85.06, 180, 85.06, 4326));
    end if;
    return ST_AsMVTGeom(ST_Transform(g, 3857), tile, 4096, 64, true);
exception when others then
    return null;
end $$;

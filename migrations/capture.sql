-- Capture: the functions and triggers that turn a River job that failed for good
-- into one dead letter. Applied anew by every migrate, since a full migration of
-- River down and up drops the triggers in silence.

-- River's indexes for searches in jobs' arguments and metadata cost every job six
-- writes, and the door the worst of its answer times. Nobody searches here: an event's
-- job is found by its id. A migration of River brings them back.
drop index if exists river_job_args_index;
drop index if exists river_job_metadata_index;

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
    -- Douglas-Peucker takes the square of the points of a zigzag: hundreds of thousands
    -- would keep what is written together with it for minutes. So many are first put
    -- on a grid, in one pass, and thousands thinned out by area (Visvalingam-Whyatt).
    if ST_NPoints(s) > 200000 then
        s := ST_SnapToGrid(s, tolerance);
        if s is null or ST_NPoints(s) not between 1 and 200000 then
            return ST_Envelope(g);
        end if;
    end if;
    for i in 0..12 loop
        exit when ST_NPoints(s) <= 2000;
        s := coalesce(ST_SimplifyVW(s, tolerance * tolerance * 4 ^ i), s);
    end loop;
    if ST_NPoints(s) not between 4 and 2000 then
        return ST_Envelope(g); -- of many parts, each of which would stay, or of one that no outline tells
    end if;
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

-- Ends the events that ended jobs own, and writes or renews their letters, all in one
-- go. Returns the letters' ids, in no order; a job has none when the fence did not
-- hold: its event was processed, is dead already, or has another job.
--
-- output is what the worker recorded of the failure (dlq.Failure); where it is
-- missing the context is lost, and only what the job itself tells is known.
-- redrive is {letter_id, cap, backoff_seconds} where the job is one.
--
-- River's connections plan every statement anew, which here would cost more than all
-- the rest. Each is a look-up by unique keys: one plan serves for good, as long as it
-- is not made for a table that was empty.
create or replace function geodlq_capture_all(ended geodlq_ended[]) returns bigint[]
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    ids bigint[];
begin
    -- In a statement of its own, before their status is read.
    perform from unnest(ended) j join events e on e.job_id = j.job_id join dead_letters d on d.work_key = e.work_key
    order by d.work_key for update of d;

    with job as materialized (
        select * from unnest(ended)
    ), dead as (
        update events e set state = 'dead', finished_at = j.at,
            tries = least(coalesce((j.output->>'tries')::integer, 1), 32767)
        from job j
        where e.job_id = j.job_id and e.state in ('accepted', 'retrying')
        returning e as event, j.job_id, j.output, j.redrive, j.fallback, j.at
    ), large as (
        delete from failure_geometries f using job j
        where f.job_id = j.job_id and (j.output->>'wkb_stored')::boolean
        returning f.job_id, f.wkb
    ), read as materialized (
        select d.output, d.fallback, d.at, (d.event).*, geodlq_body(d.event) as bytes,
            geodlq_geometry(case when (d.output->>'wkb_stored')::boolean then l.wkb else decode(d.output->>'wkb', 'base64') end) as g,
            coalesce((d.redrive->>'cap')::integer, 5) as cap,
            make_interval(secs => coalesce((d.redrive->>'backoff_seconds')::double precision, 0)) as pause
        from dead d left join large l using (job_id)
    ), failed as materialized (
        select r.*, geodlq_simplified(r.g) as small, was.status as was
        from read r left join dead_letters was using (work_key)
    ), letter as (
        insert into dead_letters as d (
            work_key, kind, event_id, task, source,
            stage, class, error, stack, http_status, exit_code, fingerprint, tries, outcome_unknown, context_lost,
            geom, geom_simplified, anchor, located_by, src_crs, geom_hash, invalid_at,
            payload_json, media_type, size, sha256, first_failed_at, failed_at)
        select
            f.work_key, 'event', f.id, f.task, f.source,
            coalesce(f.output->>'stage', 'downstream'), coalesce(f.output->>'class', 'unknown'),
            left(coalesce(f.output->>'error', f.fallback), 2000), left(coalesce(f.output->>'stack', ''), 8000),
            (f.output->>'http_status')::integer, (f.output->>'exit_code')::bigint,
            coalesce(f.output->>'fingerprint', 'context-lost'),
            coalesce((f.output->>'tries')::integer, 1),
            coalesce((f.output->>'outcome_unknown')::boolean, false), coalesce(f.output->>'stage', '') = '',
            f.small, coalesce(ST_NPoints(f.small) <> ST_NPoints(f.g), false), case when f.g is not null then geodlq_point(f.output->'anchor') end,
            case when f.g is not null and f.output ? 'anchor' then 'geometry' else 'none' end,
            coalesce(f.output->>'src_crs', f.claimed_crs), coalesce(geodlq_geom_hash(f.g), ''),
            geodlq_point(f.output->'invalid_at'),
            geodlq_json(f.bytes, f.media_type), f.media_type, f.size, f.sha256, f.at, f.at
        from failed f order by f.work_key
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
            resolved_at = case when d.status = 'abandoned' then d.resolved_at end,
            version = d.version + 1,
            (redrives, not_before, status, reason) = (
                select d.redrives + r.redriven,
                    case when r.redriven = 1 then f.at + f.pause * (d.redrives + 1) else d.not_before end,
                    case when r.redriven = 1 and d.redrives + 1 >= f.cap then 'quarantined'
                         when d.status in ('redriving', 'replayed') then 'pending'
                         else d.status end,
                    case when r.redriven = 1 and d.redrives + 1 >= f.cap then format('%s redrives failed', d.redrives + 1) else d.reason end
                from failed f, (select (d.status = 'redriving')::integer) r (redriven)
                where f.work_key = excluded.work_key)
        returning d.id, d.work_key, d.status, d.error
    ), history as (
        insert into dead_letter_history (letter_id, at, actor, action, from_status, to_status, reason, job_id)
        select l.id, f.at, 'geodlq', case when f.was is null then 'dead_lettered' else 'failed_again' end,
            coalesce(f.was, ''), l.status, left(l.error, 500), f.job_id
        from letter l join failed f using (work_key)
    ), item as (
        update redrive_letters r set state = case when l.status = 'quarantined' then 'quarantined' else 'failed' end,
            outcome = left(l.error, 500), ended_at = f.at
        from letter l join failed f using (work_key)
        where r.job_id = f.job_id and f.was = 'redriving'
    )
    select array_agg(id) into ids from letter;
    return ids;
end $$;

-- The same of one job: its letter's id, or null.
create or replace function geodlq_capture(job_id bigint, output jsonb, redrive jsonb, fallback text, at timestamptz)
returns bigint
language sql as $$
    select (geodlq_capture_all(array[row(job_id, output, redrive, fallback, at)::geodlq_ended]))[1]
$$;

-- What a job that ended without success leaves for its letter.
create or replace function geodlq_ended(job river_job, deleted boolean) returns geodlq_ended
language sql stable as $$
    select row(job.id, job.metadata->'output', job.metadata->'redrive',
        case when deleted then 'the job was deleted before it ended'
             else coalesce(job.errors[cardinality(job.errors)]->>'error', 'the job ended as ' || job.state || ' without an error') end,
        coalesce(job.finalized_at, now()))::geodlq_ended
$$;

-- Captures jobs that ended, hundreds at a time, and one by one where that fails. Never
-- raises: one raising row would stall the client's whole batch of completions. What
-- fails here is found by the sweeper.
create or replace function geodlq_capture_safely(ended geodlq_ended[]) returns void
language plpgsql as $$
declare
    chunk constant integer := 500;
    part  geodlq_ended[];
begin
    for n in 0 .. (cardinality(ended) - 1) / chunk loop
        part := ended[n * chunk + 1 : (n + 1) * chunk];
        begin
            perform geodlq_capture_all(part);
        exception when others then
            for i in 1 .. cardinality(part) loop
                begin
                    perform geodlq_capture_all(part[i:i]);
                exception when others then
                    raise warning 'geodlq: job % was not captured (%); the sweeper will', part[i].job_id, sqlstate;
                end;
            end loop;
        end;
    end loop;
end $$;

-- A job that was inserted as ended, or deleted before it was.
create or replace function geodlq_on_job() returns trigger
language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        perform geodlq_capture_safely(array[geodlq_ended(old, true)]);
    else
        perform geodlq_capture_safely(array[geodlq_ended(new, false)]);
    end if;
    return null;
end $$;

-- Jobs that ended. After the statement: River ends thousands in one.
create or replace function geodlq_on_jobs() returns trigger
language plpgsql as $$
declare
    ended geodlq_ended[];
begin
    select array_agg(geodlq_ended(n, false)) into ended from became n
    where n.state in ('discarded', 'cancelled') and n.kind = 'process_event'
        and n.id not in (select id from was where state in ('discarded', 'cancelled'));
    if ended is not null then
        perform geodlq_capture_safely(ended);
    end if;
    return null;
end $$;

drop trigger if exists geodlq_capture_update on river_job;
create trigger geodlq_capture_update after update on river_job
    referencing old table as was new table as became for each statement
    execute function geodlq_on_jobs();

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

-- Ends events well behind the fence, and with them the redrives of their letters, and
-- writes the features of those that have one here. Returns the places of the events
-- for which the fence held, and the blobs of bodies that are let go: a body goes unless
-- a letter shows it.
create or replace function geodlq_complete(ids bigint[], job_ids bigint[], tries integer[],
    to_features boolean[], properties bytea[], wkbs bytea[], out places bigint[], out released text[])
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    with input as materialized (
        select * from unnest(ids, job_ids, tries, to_features, properties, wkbs)
            with ordinality as t (id, job_id, tries, to_features, properties, wkb, n)
    ), done as (
        update events e set state = 'processed', finished_at = now(), tries = least(i.tries, 32767),
            (body, blob) = (select e.body, e.blob from dead_letters l where l.event_id = e.id limit 1)
        from input i
        where e.id = i.id and e.job_id = i.job_id and e.state in ('accepted', 'retrying')
        returning i.n, e.id, e.job_id, e.work_key, e.source, e.subject, e.version, e.blob,
            i.to_features, i.properties, i.wkb
    ), feature as (
        insert into features (work_key, source, subject, version, properties, geom, geom_hash)
        select d.work_key, d.source, d.subject, d.version, convert_from(d.properties, 'UTF8')::json, g, geodlq_geom_hash(g)
        from done d, ST_GeomFromWKB(d.wkb, 4326) as g
        where d.to_features
        on conflict (work_key) do update set
            source = excluded.source, subject = excluded.subject, version = excluded.version,
            properties = excluded.properties, geom = excluded.geom, geom_hash = excluded.geom_hash, written_at = now()
    ), letter as (
        update dead_letters l set status = 'replayed', resolved_at = now(), not_before = null, version = l.version + 1
        from done d where l.event_id = d.id and l.status = 'redriving'
        returning l.id, d.job_id
    ), item as (
        update redrive_letters r set state = 'replayed', ended_at = now() from letter where r.job_id = letter.job_id
    ), history as (
        insert into dead_letter_history (letter_id, actor, action, from_status, to_status, job_id)
        select id, 'geodlq', 'replayed', 'redriving', 'replayed', job_id from letter
    )
    -- The statement's own snapshot still has the blob that was.
    select array_agg(d.n), array_agg(case when d.blob is null then e.blob end) into places, released
    from done d join events e on e.id = d.id;
end $$;

-- The same, all in one go, or, where one of them stands in the way, each by itself:
-- code and message are then its error. An event that is not returned has another job.
create or replace function geodlq_complete_all(ids bigint[], job_ids bigint[], tries integer[],
    to_features boolean[], properties bytea[], wkbs bytea[])
returns table (n bigint, released text, code text, message text)
language plpgsql as $$
declare
    ended record;
begin
    begin
        ended := geodlq_complete(ids, job_ids, tries, to_features, properties, wkbs);
        return query select p, r, null::text, null::text from unnest(ended.places, ended.released) u (p, r);
        return;
    exception when others then
        if cardinality(ids) = 1 then
            return query select 1::bigint, null::text, sqlstate, sqlerrm;
            return;
        end if;
    end;
    for i in 1 .. cardinality(ids) loop
        begin
            ended := geodlq_complete(ids[i:i], job_ids[i:i], tries[i:i], to_features[i:i], properties[i:i], wkbs[i:i]);
            return query select i::bigint, r, null::text, null::text from unnest(ended.released) r;
        exception when others then
            return query select i::bigint, null::text, sqlstate, sqlerrm;
        end;
    end loop;
end $$;

-- A geometry from srid in EPSG:4326, and back again; code and message where PROJ, or
-- PostGIS, refuses it, so that others of its statement go on.
create or replace function geodlq_project(wkb bytea, srid integer,
    out there bytea, out back bytea, out code text, out message text)
language plpgsql stable parallel safe as $$
declare
    g geometry;
begin
    g := ST_Transform(ST_GeomFromWKB(wkb, srid), 4326);
    there := ST_AsBinary(g, 'NDR');
    back := ST_AsBinary(ST_Transform(g, srid), 'NDR');
exception when others then
    there := null;
    code := sqlstate;
    message := sqlerrm;
end $$;

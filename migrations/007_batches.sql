-- A job that ended without success, as geodlq_capture_all takes it.
create type geodlq_ended as (job_id bigint, output jsonb, redrive jsonb, fallback text, at timestamptz);

-- The function that took jobs one by one; see capture.sql.
drop function if exists geodlq_capture(bigint, jsonb, jsonb, text, timestamptz) cascade;

-- Events end many at a time: their moves in the ledger are summed by the statement, a
-- delta a source and day instead of one a unit.
drop trigger geodlq_ledger_move on events;
drop function geodlq_ledger_move();

-- What they are now less what they were, without a join: nobody tells the planner how
-- many there are.
create function geodlq_ledger_move() returns trigger
language plpgsql as $$
begin
    insert into ledger_deltas (source, day, received, processed, dead, in_flight)
    select source, (received_at at time zone 'UTC')::date, sum(received), sum(processed), sum(dead), sum(in_flight)
    from (
        select source, received_at, (state <> 'split')::int as received, (state = 'processed')::int as processed,
            (state = 'dead')::int as dead, (state in ('accepted', 'retrying'))::int as in_flight from became
        union all
        select source, received_at, -(state <> 'split')::int, -(state = 'processed')::int,
            -(state = 'dead')::int, -(state in ('accepted', 'retrying'))::int from was
    ) moved
    group by 1, 2
    having sum(received) <> 0 or sum(processed) <> 0 or sum(dead) <> 0 or sum(in_flight) <> 0;
    return null;
end $$;

create trigger geodlq_ledger_move after update on events
    referencing old table as was new table as became for each statement execute function geodlq_ledger_move();

-- Shapes and flaws have indexes of their own on their geometry, points have anchors.
drop index dead_letters_geom;

---- create above / drop below ----

create index dead_letters_geom on dead_letters using gist (geom) where geom is not null;

drop type geodlq_ended cascade;
drop trigger geodlq_ledger_move on events;
drop function geodlq_ledger_move();

create function geodlq_ledger_move() returns trigger
language plpgsql as $$
begin
    insert into ledger_deltas (source, day, received, processed, dead, in_flight)
    values (new.source, (new.received_at at time zone 'UTC')::date,
        (new.state <> 'split')::int - (old.state <> 'split')::int,
        (new.state = 'processed')::int - (old.state = 'processed')::int,
        (new.state = 'dead')::int - (old.state = 'dead')::int,
        (new.state in ('accepted', 'retrying'))::int - (old.state in ('accepted', 'retrying'))::int);
    return null;
end $$;

create trigger geodlq_ledger_move after update of state on events
    for each row when (old.state is distinct from new.state
        and not (old.state in ('accepted', 'retrying') and new.state in ('accepted', 'retrying')))
    execute function geodlq_ledger_move();

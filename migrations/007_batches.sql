-- A job that ended without success, as geodlq_capture_all takes it.
create type geodlq_ended as (job_id bigint, output jsonb, redrive jsonb, fallback text, at timestamptz);

-- The function that took jobs one by one; see capture.sql.
drop function if exists geodlq_capture(bigint, jsonb, jsonb, text, timestamptz) cascade;

-- Events end many at a time: their moves in the ledger are summed by the statement, a
-- delta a source and day instead of one a unit.
drop trigger geodlq_ledger_move on events;
drop function geodlq_ledger_move();

create function geodlq_ledger_move() returns trigger
language plpgsql as $$
begin
    insert into ledger_deltas (source, day, received, processed, dead, in_flight)
    select n.source, (n.received_at at time zone 'UTC')::date,
        sum((n.state <> 'split')::int - (o.state <> 'split')::int),
        sum((n.state = 'processed')::int - (o.state = 'processed')::int),
        sum((n.state = 'dead')::int - (o.state = 'dead')::int),
        sum((n.state in ('accepted', 'retrying'))::int - (o.state in ('accepted', 'retrying'))::int)
    from was o join became n using (id)
    where o.state <> n.state
        and not (o.state in ('accepted', 'retrying') and n.state in ('accepted', 'retrying'))
    group by 1, 2;
    return null;
end $$;

create trigger geodlq_ledger_move after update on events
    referencing old table as was new table as became for each statement execute function geodlq_ledger_move();

---- create above / drop below ----

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

-- The ledger: what became of the units that each source sent on each UTC day,
--   received = processed + dead + in_flight + duplicates
-- A unit stands on the day of its receipt, whenever its state changes; a
-- collection is replaced by its features, which stand on its day.
--
-- Changes are appended as deltas, in the transaction of the change: no two
-- transactions ever wait for each other's row. They are folded into the ledger
-- every few seconds; who reads sums both.
create table ledger_deltas (
    day              date not null,
    received         integer not null default 0,
    processed        integer not null default 0,
    dead             integer not null default 0,
    in_flight        integer not null default 0,
    duplicates       integer not null default 0,
    forgotten        integer not null default 0, -- of the processed: those whose keys were let go
    reports          integer not null default 0, -- of geotasks; no part of the sum
    reports_repeated integer not null default 0,
    source           text not null
)
-- Rows stand for seconds: what is dead of them goes soon.
with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = -1,
      autovacuum_analyze_threshold = 1000000000);

create table ledger (
    day              date not null,
    source           text not null,
    received         bigint not null default 0,
    processed        bigint not null default 0,
    dead             bigint not null default 0,
    in_flight        bigint not null default 0,
    duplicates       bigint not null default 0,
    forgotten        bigint not null default 0,
    reports          bigint not null default 0,
    reports_repeated bigint not null default 0,
    primary key (day, source)
);

-- What the door answered with an error, by status: requests, and records of
-- batches.
create table ledger_refusals (
    day    date not null,
    source text not null,
    status smallint not null,
    n      bigint not null,
    primary key (day, source, status)
);

-- The last comparison of the ledger with the events; one row.
create table ledger_checks (
    one        boolean primary key default true check (one),
    checked_at timestamptz not null,
    mismatched bigint not null,
    mismatches jsonb not null -- [{"day", "source", "column", "ledger", "tables"}], the first of them
);

-- A unit that came in. After the statement, since a batch is one delta a source
-- then.
create function geodlq_ledger_in() returns trigger
language plpgsql as $$
begin
    insert into ledger_deltas (source, day, received, processed, dead, in_flight)
    select source, (received_at at time zone 'UTC')::date, count(*),
        count(*) filter (where state = 'processed'), count(*) filter (where state = 'dead'),
        count(*) filter (where state in ('accepted', 'retrying'))
    from came where state <> 'split' group by 1, 2;
    return null;
end $$;

create trigger geodlq_ledger_in after insert on events
    referencing new table as came for each statement execute function geodlq_ledger_in();

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

-- What stands already. The triggers hold a lock that keeps writers out until here.
insert into ledger (day, source, received, processed, dead, in_flight)
select (received_at at time zone 'UTC')::date, source, count(*),
    count(*) filter (where state = 'processed'), count(*) filter (where state = 'dead'),
    count(*) filter (where state in ('accepted', 'retrying'))
from events where state <> 'split' group by 1, 2;

---- create above / drop below ----

drop trigger geodlq_ledger_move on events;
drop trigger geodlq_ledger_in on events;
drop function geodlq_ledger_move();
drop function geodlq_ledger_in();
drop table ledger_checks;
drop table ledger_refusals;
drop table ledger;
drop table ledger_deltas;

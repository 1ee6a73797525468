-- Counts kept beside the letters, for the map, the charts and the totals: an
-- append-only log of changes, and runs of blocks that it is folded into. Counts are
-- signed and only ever added up, so that what reads runs and log in one snapshot is
-- exact at any time, and whoever folds needs no lock on letters.

-- Stands for the names that letters are counted by. An array's hash takes each name
-- apart, whatever it holds.
alter table dead_letters
    drop column facet,
    add column facet bigint not null generated always as (hash_array_extended(array[
        class, stage, status, source, task, fingerprint, located_by,
        case when anchor is null then '' else 'located' end], 0)) stored;

create index dead_letters_facet on dead_letters (facet, failed_at, id);

-- The names of each facet that was ever folded. Rows are never changed, and ids
-- grow in the order of their commits.
create table facets (
    id          integer generated always as identity primary key,
    facet       bigint not null unique,
    class       text not null,
    stage       text not null,
    status      text not null,
    source      text not null,
    task        text not null,
    fingerprint text not null,
    located_by  text not null,
    located     boolean not null
);

-- What a letter was and is; either side is null where it did not or does not exist.
-- Every write of a letter makes a row, so that none here since a fold means that
-- nothing changed.
create table letter_deltas (
    was_facet    bigint,
    was_cell     bigint,
    was_at       timestamptz,
    was_attempts integer,
    facet        bigint,
    cell         bigint,
    failed_at    timestamptz,
    attempts     integer
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);

-- One row. Who folds, merges or rebuilds locks the table; fold goes up with every
-- change of letter_blocks that takes rows out of letter_deltas.
create table letter_folds (
    fold      bigint not null,
    folded_at timestamptz not null
);
insert into letter_folds values (0, '-infinity');

create sequence letter_runs;

-- Columns of signed counts (package tally), in runs sorted by day, cell and second.
-- A block of a summary stands for blocks of kind 0 of its run that are summed.
create table letter_blocks (
    id          bigint generated always as identity primary key,
    run         bigint not null,
    kind        smallint not null,
    seq         integer not null,
    summed      boolean not null,
    entries     integer not null,
    cell_from   bigint not null, -- of zoom 16, both ends within
    cell_to     bigint not null,
    second_from bigint not null, -- since 1970, both ends within
    second_to   bigint not null,
    cells       bytea,
    facets      bytea not null,
    seconds     bytea,
    attempts    bytea,
    weights     bytea, -- null: all 1
    unique (run, kind, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 2000);

-- Read whole, and quickly: the columns do not compress well.
alter table letter_blocks
    alter column cells set storage external,
    alter column facets set storage external,
    alter column seconds set storage external,
    alter column attempts set storage external,
    alter column weights set storage external;

create function geodlq_count() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into letter_deltas (facet, cell, failed_at, attempts)
        values (new.facet, new.cell, new.failed_at, new.attempts);
    elsif tg_op = 'UPDATE' then
        insert into letter_deltas
        values (old.facet, old.cell, old.failed_at, old.attempts, new.facet, new.cell, new.failed_at, new.attempts);
    else
        insert into letter_deltas (was_facet, was_cell, was_at, was_attempts)
        values (old.facet, old.cell, old.failed_at, old.attempts);
    end if;
    return null;
end $$;

create trigger geodlq_count after insert or update or delete on dead_letters
    for each row execute function geodlq_count();

create function geodlq_count_none() returns trigger
language plpgsql as $$
begin
    lock table letter_folds in exclusive mode;
    delete from letter_deltas;
    delete from letter_blocks;
    update letter_folds set fold = fold + 1;
    return null;
end $$;

create trigger geodlq_count_none after truncate on dead_letters
    for each statement execute function geodlq_count_none();

insert into letter_deltas (facet, cell, failed_at, attempts)
select facet, cell, failed_at, attempts from dead_letters;

-- Lists look letters up by facet in an index alone, as far as it was vacuumed.
alter table dead_letters set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05);

-- Shapes and flaws of a tile are sought among the letters that have some.
create index dead_letters_shape on dead_letters using gist (geom) where ST_Dimension(geom) > 0;
create index dead_letters_flaw on dead_letters using gist (geom) where invalid_at is not null;
create index dead_letters_oldest_open on dead_letters (first_failed_at)
    where status in ('pending', 'redriving', 'quarantined');
drop index dead_letters_resolved_at;
create index dead_letters_replayed on dead_letters (resolved_at) where status = 'replayed';

---- create above / drop below ----

drop index dead_letters_replayed;
create index dead_letters_resolved_at on dead_letters (resolved_at) where resolved_at is not null;
alter table dead_letters reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor,
    autovacuum_analyze_scale_factor);
drop index dead_letters_oldest_open;
drop index dead_letters_flaw;
drop index dead_letters_shape;
drop trigger geodlq_count_none on dead_letters;
drop trigger geodlq_count on dead_letters;
drop function geodlq_count_none();
drop function geodlq_count();
drop table letter_blocks;
drop sequence letter_runs;
drop table letter_folds;
drop table letter_deltas;
drop table facets;
drop index dead_letters_facet;
alter table dead_letters
    drop column facet,
    add column facet bigint not null generated always as (hashtextextended(
        class || ' ' || stage || ' ' || status || ' ' || source || ' ' || task || ' ' || fingerprint, 0)) stored;
create index dead_letters_facet on dead_letters (facet, failed_at, id) include (located_by);

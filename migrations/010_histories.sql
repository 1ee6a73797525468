-- A database may go back in time under those that keep what they read of it: restored, or
-- failed over to a standby that lost commits. What is kept by an id must not be found under
-- the same id in another history.

-- A block's id never comes again: 60 bits of chance.
alter table letter_blocks
    alter column id drop identity,
    alter column id set default ('x' || translate(left(gen_random_uuid()::text, 18), '-', ''))::bit(64)::bigint;

-- Ids of facets stay small, as blocks are made of them. One whose mark is the same has the
-- same facets before it.
alter table facets add column mark uuid not null default gen_random_uuid();

-- The start of the server takes its place, which a restored database can't have in common.
alter table letter_folds drop column epoch;

---- create above / drop below ----

alter table letter_folds add column epoch text not null default substr(md5(random()::text || clock_timestamp()), 1, 8);
alter table facets drop column mark;
truncate letter_blocks, letter_deltas;
alter table letter_blocks
    alter column id drop default,
    alter column id add generated always as identity;
update letter_folds set fold = fold + 1;
insert into letter_deltas (facet, cell, failed_at, attempts)
select facet, cell, failed_at, attempts from dead_letters;

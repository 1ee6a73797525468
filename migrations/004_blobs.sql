-- Bytes too large for a row lie in a bucket, under a key that one row refers to.
-- Of a row, either body (or payload) or blob is set, or neither where the bytes are
-- no longer kept. A child that is a range lies where its parent's bytes lie.
alter table events add column blob text;
alter table dead_letters add column blob text;

-- For the collector, which asks whether anybody refers to a blob.
create index events_blob on events (blob) where blob is not null;
create index dead_letters_blob on dead_letters (blob) where blob is not null;

-- The prefix of this database's keys in its bucket: a collector never sees those of
-- another database.
create table bucket_owner (
    one   boolean primary key default true check (one),
    owner text not null default replace(left(gen_random_uuid()::text, 13), '-', '')
);
insert into bucket_owner default values;

---- create above / drop below ----

drop table bucket_owner;
drop index dead_letters_blob;
drop index events_blob;
alter table dead_letters drop column blob;
alter table events drop column blob;

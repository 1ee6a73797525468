-- Lists look in the order of time for letters of some facets, and counts for those of a
-- part of an hour: both in the index alone, as far as it was vacuumed.
create index dead_letters_time on dead_letters (failed_at desc, id desc) include (facet);
drop index dead_letters_failed_at;

-- In words of its own: the state was a condition of statements that end events by
-- their ids, and where few had been in flight when the table was analysed, the planner
-- read this index whole for each batch of a full queue.
drop index events_in_flight;
create index events_in_flight on events (id) where finished_at is null;
alter table events add constraint events_finished_check
    check ((finished_at is null) = (state in ('accepted', 'retrying'))) not valid; -- for what is written from now on

---- create above / drop below ----

alter table events drop constraint events_finished_check;
drop index events_in_flight;
create index events_in_flight on events (id) where state in ('accepted', 'retrying');
create index dead_letters_failed_at on dead_letters (failed_at desc, id desc);
drop index dead_letters_time;

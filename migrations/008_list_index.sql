-- Lists look in the order of time for letters of some facets, and counts for those of a
-- part of an hour: both in the index alone, as far as it was vacuumed.
create index dead_letters_time on dead_letters (failed_at desc, id desc) include (facet);
drop index dead_letters_failed_at;

---- create above / drop below ----

create index dead_letters_failed_at on dead_letters (failed_at desc, id desc);
drop index dead_letters_time;

-- Holds the number of a migration that stands on another branch: dropped on merge.
select 1;

---- create above / drop below ----

select 1;

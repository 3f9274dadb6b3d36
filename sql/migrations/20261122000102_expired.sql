-- How much of a topic retention has deleted, so that a replay can report it.
alter table anabranch.topics add column expired_below bigint not null default 0;

-- How much of a topic retention has dropped: who reads it again is told.
alter table anabranch.topics add column expired_below bigint not null default 0;

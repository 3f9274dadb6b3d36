-- Progress of queries that run in the background: their steps by number, and how they ended without an answer.
set local search_path = anabranch, extensions, public;

alter table runs add column deadline timestamptz;
alter table runs add column steps jsonb not null default '{}';
alter table runs add column stopped jsonb;

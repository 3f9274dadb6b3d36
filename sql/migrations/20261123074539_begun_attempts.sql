-- Attempts at a reaction that began and have not ended; a worker that is killed in the middle leaves its
-- attempt open.
set local search_path = anabranch, extensions, public;

alter table handled add column begun int not null default 0;

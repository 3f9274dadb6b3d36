-- Expired ranges, so that a reader that had not read them can be told how much it missed: one row per record,
-- older neighbors folded into one. First and last are in reading order; a batch is one deleting statement.
-- Operational.
set local search_path = anabranch, extensions, public;

create table expired_ranges (
  id bigint generated always as identity primary key,
  topic text not null,
  first_xact xid8 not null,
  first_position bigint not null,
  xact xid8 not null,
  position bigint not null,
  first_batch bigint not null,
  batch bigint not null,
  records bigint not null
);
create index expired_ranges_by_position on expired_ranges (topic, xact, position);

-- The last batch. A transaction that deletes records locks this row until it commits, so a reader that has
-- seen a batch has seen all earlier ones.
create table expired_batches (
  one boolean primary key default true check (one),
  batch bigint not null default 0
);
insert into expired_batches default values;

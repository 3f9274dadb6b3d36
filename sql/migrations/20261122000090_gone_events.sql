-- What the log no longer keeps, so that who had not read it is told how much: one row a record, neighbours of long ago in one row together. First and last are
-- places in reading order; a batch is what one statement took. Operational.
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

-- The last batch. Whoever takes records holds this row until it commits, so that a reader that has seen a batch has seen those before it.
create table expired_batches (
  one boolean primary key default true check (one),
  batch bigint not null default 0
);
insert into expired_batches default values;

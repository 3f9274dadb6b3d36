-- The event log in Postgres, read in (xact, position) order below the snapshot horizon.
create schema if not exists extensions;
create schema if not exists anabranch;
create extension if not exists vector with schema extensions;
set local search_path = anabranch, extensions, public;

-- Topics of the log. Retention has deleted all events below position `expired_below`.
create table topics (
  topic text primary key,
  partitions int not null,
  retention_ms bigint,
  expired_below bigint not null default 0
);

-- Events of all topics.
create table events (
  position bigint generated always as identity primary key,
  xact xid8 not null default pg_current_xact_id(),
  topic text not null,
  key bytea,
  headers jsonb not null,
  value bytea,
  appended_at timestamptz not null default clock_timestamp()
);
alter table events alter column value set storage external;
create index events_by_topic on events (topic, xact, position);

-- Cursor and lease of each consumer group, by topic.
create table log_readers (
  reader text not null,
  topic text not null,
  xact xid8 not null default '0',
  position bigint not null default 0,
  lease_owner uuid,
  lease_until timestamptz,
  primary key (reader, topic)
);

-- Offsets of Kafka consumer groups as these tables know them. A group that has committed more has read into
-- newer tables: these were restored.
create table consumer_offsets (
  reader text not null,
  topic text not null,
  partition int not null,
  next_offset bigint not null,
  primary key (reader, topic, partition)
) with (fillfactor = 50);

-- Why a reader is stalled. Operational; a row that is not renewed expires.
create table reader_status (
  reader text not null,
  topic text not null,
  partition int not null,
  code text not null,
  detail text not null,
  remedy text not null,
  since timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (reader, topic, partition)
);

-- Expired ranges, so that a reader that had not read them learns how much it missed: one row per record,
-- older neighbors folded into one. First and last are in reading order; a batch is one deleting statement.
-- Operational.
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
  singleton bool primary key default true check (singleton),
  batch bigint not null default 0
);
insert into expired_batches default values;

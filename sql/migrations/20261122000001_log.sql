-- The event log in Postgres, read in (xact, position) order below the snapshot horizon.
create schema if not exists extensions;
create schema if not exists anabranch;
create extension if not exists vector with schema extensions;
set local search_path = anabranch, extensions, public;

create table topics (
  topic text primary key,
  partitions int not null,
  retention_ms bigint
);

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

-- One reader per consumer group and topic: its cursor and its lease.
create table log_readers (
  reader text not null,
  topic text not null,
  xact xid8 not null default '0',
  position bigint not null default 0,
  lease_owner uuid,
  lease_until timestamptz,
  primary key (reader, topic)
);

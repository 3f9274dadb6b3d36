-- Sources: their declarations, and the state of their readers (operational: if lost, the source is read again).
set local search_path = anabranch, extensions, public;

-- Declared sources, projected from `control`. A row without `spec` is an external producer that numbers its
-- changes and whose numbers restarted.
create table sources (
  name text primary key,
  ce_source text not null,
  spec jsonb,
  epoch int not null,
  resets jsonb not null default '[]',
  removed bool not null default false,
  withdraw bool not null default false
);

-- Lease and age of each reader's state. `state_id` identifies this state: a reader that finds another id starts over.
create table source_states (
  source text primary key,
  state_id uuid not null default gen_random_uuid(),
  last_change_at timestamptz not null default clock_timestamp(),
  lease_owner uuid,
  lease_until timestamptz
);

-- Source rows as single changes, to look up columns that a later change omits or that were stored under a
-- previous key.
create table source_changes (
  source text not null,
  key text not null,
  epoch int not null,
  sequence bigint not null,
  is_snapshot_read bool not null,
  table_name text not null,
  is_deleted bool not null,
  columns jsonb not null,
  unchanged_columns text[] not null,
  old_key text,
  added_at timestamptz not null default clock_timestamp(),
  primary key (source, key, epoch, sequence, is_snapshot_read, is_deleted)
);
create index source_changes_by_old_key on source_changes (source, old_key) where old_key is not null;

-- What was last published to `raw` about each row.
create table source_rows (
  source text not null,
  key text not null,
  table_name text not null,
  epoch int not null,
  sequence bigint not null,
  step int not null,
  digest text not null,
  external_id text not null,
  is_live bool not null,
  released_ids text[] not null default '{}',
  is_pending bool not null,
  primary key (source, key)
);
create index source_rows_live on source_rows (source, table_name, key) where is_live;
create index source_rows_pending on source_rows (source, key) where is_pending;
create index source_rows_by_external_id on source_rows (source, external_id);

-- Snapshots and truncations of each source table, as (epoch, sequence).
create table source_tables (
  source text not null,
  table_name text not null,
  truncated bigint[] not null default '{0,0}',
  read bigint[] not null default '{0,0}',
  ended bigint[],
  ended_topic text,
  ended_ends jsonb,
  ended_at timestamptz,
  primary key (source, table_name)
);

-- How far each source topic was read.
create table source_progress (
  source text not null,
  topic text not null,
  partition int not null,
  next_offset bigint not null,
  primary key (source, topic, partition)
);

-- Other reader state: files, addresses, snapshot progress, why a reader stopped.
create table source_notes (
  source text not null,
  key text not null,
  value jsonb not null,
  primary key (source, key)
);

-- Keys of documents and runs, wrapped by the master key. Not a projection: back the schema up (pg_dump
-- --schema keystore).
create schema if not exists keystore;

create table keystore.keys (
  id uuid primary key,
  tenant text not null,
  subject uuid,
  wrapped bytea,
  created_at timestamptz not null default clock_timestamp(),
  destroyed_at timestamptz
);
-- A subject has one key at a time; a document that is sent again after its erasure gets a new one.
create unique index keys_current on keystore.keys (subject, tenant) where destroyed_at is null;

-- One row: the master key that wraps the keys.
create table keystore.master (
  singleton bool primary key default true check (singleton),
  fingerprint text not null
);

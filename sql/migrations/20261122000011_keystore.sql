-- Keys of documents and runs, wrapped by the master key. No view of the log: it has a backup of its own (pg_dump --schema keystore).
create schema if not exists keystore;

create table keystore.keys (
  id uuid primary key,
  tenant text not null,
  subject uuid,
  wrapped bytea,
  created_at timestamptz not null default clock_timestamp(),
  destroyed_at timestamptz
);
-- A subject has one key at a time; erased and sent again, it begins another life with another key.
create unique index keys_current on keystore.keys (subject, tenant) where destroyed_at is null;

-- One row: which master key wraps them.
create table keystore.master (
  singleton bool primary key default true check (singleton),
  fingerprint text not null
);

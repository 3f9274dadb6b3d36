-- Keys of documents and runs, and their erasure.
-- The keystore is not a projection: back the schema up (pg_dump --schema keystore).
create schema if not exists keystore;

-- Keys, wrapped with the master key and with the share in `slot` of the key file (null: without a share).
create table keystore.keys (
  id uuid primary key,
  tenant text not null,
  subject uuid,
  wrapped bytea,
  slot bigint,
  created_at timestamptz not null default clock_timestamp(),
  destroyed_at timestamptz
);
-- A subject has one key at a time; a document that is sent again after its erasure gets a new one.
create unique index keys_current on keystore.keys (subject, tenant) where destroyed_at is null;

-- One row: the master key that wraps the keys, and the key file that contains the shares.
create table keystore.master (
  singleton bool primary key default true check (singleton),
  fingerprint text not null,
  key_file uuid
);

-- Keys that verify signatures of former master keys, wrapped with the present one.
create table keystore.signing_keys (
  fingerprint text primary key,
  wrapped bytea not null
);

-- One row: the offsets below which unsigned events are accepted (JSON; topic -> partition -> offset),
-- recorded at the first start of a version that signs, with a MAC. Part of the keystore, since a rebuild of
-- the tables keeps it.
create table keystore.unsigned_events (
  singleton bool primary key default true check (singleton),
  below bytea not null,
  mac bytea not null
);

-- Tenants whose events were ever stored unencrypted; '' is all. Part of the keystore: what was never
-- encrypted cannot be erased by destroying a key.
create table keystore.unencrypted_tenants (
  tenant text primary key,
  since timestamptz not null default clock_timestamp()
);

set local search_path = anabranch, extensions, public;

-- Receipts of erasures. They contain names and counts, never erased data.
create table erasures (
  receipt_id uuid primary key,
  tenant text not null,
  scope text not null,
  name text not null,
  requested_at timestamptz not null,
  documents int,
  removed jsonb,
  events int,
  method text,
  remains text[],
  raw_until timestamptz,
  completed_at timestamptz
);
create index erasures_by_time on erasures (tenant, requested_at desc);

-- Operational: what an erasure has removed so far, so that an interrupted one reports complete counts.
create table erasure_counts (
  receipt_id uuid not null,
  place text not null,
  removed bigint not null,
  primary key (receipt_id, place)
);

-- The documents that an erasure found first, so that an interrupted one resumes with the same. Operational.
create table erasure_subjects (
  receipt_id uuid not null,
  subject uuid not null,
  primary key (receipt_id, subject)
);

-- Keys and blobs that an erasure has found, so that an interrupted one counts each exactly once. Operational.
create table erasure_items (
  receipt_id uuid not null,
  place text not null,
  item uuid not null,
  primary key (receipt_id, place, item)
);

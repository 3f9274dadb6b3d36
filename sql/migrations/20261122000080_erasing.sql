-- The documents that an erasure found first, so that an interrupted one resumes with the same. Operational.
set local search_path = anabranch, extensions, public;

create table erasure_subjects (
  receipt_id uuid not null,
  subject uuid not null,
  primary key (receipt_id, subject)
);

-- Tenants whose events were ever stored unencrypted; '' is all. Part of the keystore: what was never
-- encrypted cannot be erased by destroying a key.
create table keystore.readable (
  tenant text primary key,
  since timestamptz not null default clock_timestamp()
);

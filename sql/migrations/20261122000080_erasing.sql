-- What an erasure is at: the documents that it found first, so that one that was interrupted goes on with the same. Operational.
set local search_path = anabranch, extensions, public;

create table erasure_subjects (
  receipt_id uuid not null,
  subject uuid not null,
  primary key (receipt_id, subject)
);

-- Tenants whose events were left readable at some time; '' stands for all. It belongs to the keys: what was never sealed, no key erases.
create table keystore.readable (
  tenant text primary key,
  since timestamptz not null default clock_timestamp()
);

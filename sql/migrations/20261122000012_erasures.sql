-- Receipts of erasures. They contain names and counts, never erased data.
set local search_path = anabranch, extensions, public;

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

-- Keys and blobs that an erasure has found, so that an interrupted one counts each exactly once. Operational.
set local search_path = anabranch, extensions, public;

create table erasure_items (
  receipt_id uuid not null,
  place text not null,
  item uuid not null,
  primary key (receipt_id, place, item)
);

-- Keys and blobs that an erasure has come upon, each once, so that one that was interrupted counts none twice and none too few. Operational.
set local search_path = anabranch, extensions, public;

create table erasure_items (
  receipt_id uuid not null,
  place text not null,
  item uuid not null,
  primary key (receipt_id, place, item)
);

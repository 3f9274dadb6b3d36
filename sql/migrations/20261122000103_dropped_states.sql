-- Blobs of token states that a dropped generation leaves in the store: they go beside everything else, unless another generation refers to them.
set local search_path = anabranch, extensions, public;

create table dropped_states (
  blob_key text primary key,
  document_id uuid not null
);

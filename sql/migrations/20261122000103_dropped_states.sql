-- Token state blobs of dropped generations, deleted in the background unless another generation refers to
-- them.
set local search_path = anabranch, extensions, public;

create table dropped_states (
  blob_key text primary key,
  document_id uuid not null
);

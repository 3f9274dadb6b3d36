-- Some blobs, at most $1, that a dropped generation left, and whether one that is not dropped refers to them.
select d.blob_key,
  exists (
    select from generations g join chunk_states s on s.generation = g.name
    where g.state <> 'dropped' and s.document_id = d.document_id and s.blob_key = d.blob_key
  ) as used
from dropped_states d order by d.blob_key limit $1

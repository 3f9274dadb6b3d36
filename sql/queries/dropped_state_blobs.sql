-- At most $1 token state blobs of dropped generations, and whether another generation uses them.
select d.blob_key,
  exists (
    select from generations g join chunk_states s on s.generation = g.name
    where g.state <> 'dropped' and s.document_id = d.document_id and s.blob_key = d.blob_key
  ) as used
from dropped_states d order by d.blob_key limit $1

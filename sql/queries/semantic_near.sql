-- Visible chunks by cosine distance to $13, through the HNSW index.
-- The cast to halfvec with a dimension must match the index expression. Iterative scans return relaxed order, so
-- the outer query sorts again.
with near as materialized (
  select c.chunk_id, c.document_id, (c.embedding::halfvec({dimension})) <=> $13::halfvec({dimension}) as distance
  from chunk_vectors c
  cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
  where c.generation = $1 and c.tenant = $2 and ($3::uuid[] is null or c.document_id = any ($3))
    and {filter_condition}
  order by (c.embedding::halfvec({dimension})) <=> $13::halfvec({dimension})
  limit $14
)
select chunk_id, document_id, 1 - distance as score from near order by distance, chunk_id

-- Visible chunks by cosine distance to $13, by exact scan.
select c.chunk_id, c.document_id, 1 - c.distance as score
from (
  select chunk_id, document_id, ord, embedding <=> $13 as distance
  from chunk_vectors
  where generation = $1 and tenant = $2 and ($3::uuid[] is null or document_id = any ($3))
  order by distance, chunk_id
  offset 0
) c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
where {filter_condition}
order by c.distance, c.chunk_id
limit $14

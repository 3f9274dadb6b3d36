-- Visible chunks of configuration $13 that match tsquery $14, best BM25 first.
-- `bm <#> weights` is the negative score. All candidates are scored first; `offset 0` delays the lookup of
-- visibility and filters to the best of them.
select c.id, c.document_id, -c.distance as score
from (
  select id, document_id, ord, bm <#> $15::text::sparsevec as distance
  from child_chunks
  where generation = $1 and tenant = $2 and cfg = $13::regconfig and tsv @@ $14::text::tsquery
    and ($3::uuid[] is null or document_id = any ($3))
  order by distance, id
  offset 0
) c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
where {filter_condition}
order by c.distance, c.id
limit $16

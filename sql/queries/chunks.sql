-- Visible child chunks by id ($2) or parent ($3), with the fields of a hit, a rerank or a citation.
-- `offset 0` keeps the planner from reordering seven joins, which takes longer than the query.
select
  c.id, c.parent_id, c.document_id, c.ord, c.kind, c.text, c.prefix, c.char_start, c.char_end, c.spans, c.ordinal, c.language, c.tsv::text as words,
  d.external_id, d.source_uri, coalesce(r.revision, d.revision, 0) as revision,
  case when d.latest = c.ord or 'title' = any (d.amended) then coalesce(d.title, t.title, d.filename) else coalesce(t.title, r.title, r.filename, d.title) end as title,
  n.background_dense, n.background_maxsim, s.blob_key, s.blob_offset, s.blob_length
from child_chunks c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
left join lateral (select * from documents d where d.id = c.document_id offset 0) d on true
left join lateral (select * from document_revisions r where r.document_id = c.document_id and r.ord = c.ord offset 0) r on true
left join lateral (select t.title from revision_texts t where t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord offset 0) t on true
left join lateral (
  select n.background_dense, n.background_maxsim from chunk_vectors n
  where n.generation = $1 and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id offset 0
) n on true
left join lateral (
  select s.blob_key, s.blob_offset, s.blob_length from chunk_states s
  where s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord and s.chunk_id = c.id offset 0
) s on true
where c.generation = $1 and ($4::text[] is null or may_read(c.document_id, c.ord, $4)) and ($2::uuid[] is null or c.id = any ($2)) and ($3::uuid[] is null or c.parent_id = any ($3))
order by array_position($3::uuid[], c.parent_id), c.ordinal, c.id

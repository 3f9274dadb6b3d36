-- Visible child chunks by id, with all that a result, a rerank or a citation needs.
select
  c.id, c.parent_id, c.document_id, c.ord, c.kind, c.text, c.prefix, c.char_start, c.char_end, c.spans, c.ordinal, c.language, c.tsv::text as words,
  d.external_id, d.source_uri, coalesce(r.revision, d.revision, 0) as revision,
  case when d.latest = c.ord or 'title' = any (d.amended) then coalesce(d.title, t.title, d.filename) else coalesce(t.title, r.title, r.filename, d.title) end as title,
  n.background_dense, n.background_maxsim, s.blob_key, s.blob_offset, s.blob_length
from child_chunks c
join visible v on v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord
left join documents d on d.id = c.document_id
left join document_revisions r on r.document_id = c.document_id and r.ord = c.ord
left join revision_texts t on t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord
left join chunk_vectors n on n.generation = $1 and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id
left join chunk_states s on s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord and s.chunk_id = c.id
where c.generation = $1 and ($2::uuid[] is null or c.id = any ($2)) and ($3::uuid[] is null or c.parent_id = any ($3))
order by array_position($3::uuid[], c.parent_id), c.ordinal, c.id

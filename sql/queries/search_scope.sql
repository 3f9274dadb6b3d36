-- Visible documents that pass the filters and are readable for $11, with their chunks; at most $12.
-- The limit suffices to decide whether there are few.
select v.document_id, v.chunks
from documents d
join visible v on v.generation = $1 and v.document_id = d.id
left join revision_texts t on t.generation = $1 and t.document_id = d.id and t.ord = v.ord
where d.tenant = $2 and v.tenant = $2
  and ($3::uuid[] is null or d.id = any ($3))
  and ($4::text[] is null or d.collection = any ($4))
  and ($5::text[] is null or d.tags @> $5)
  and ($6::text[] is null or d.external_id = any ($6))
  and ($7::text[] is null or coalesce(t.language, d.language) = any ($7))
  and ($8::date is null or coalesce(d.document_date, (d.received_at at time zone 'UTC')::date) >= $8)
  and ($9::date is null or coalesce(d.document_date, (d.received_at at time zone 'UTC')::date) <= $9)
  and ($10::jsonb is null or d.metadata @> $10)
  and may_read($11::text[], d.readers) and ($11::text[] is null or may_read(d.id, v.ord, $11))
limit $12

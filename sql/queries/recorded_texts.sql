-- Texts of chunks and parents ($2) that recorded answers used, by hash, from any generation or the history.
with wanted as (
  select * from unnest($2::uuid[], $3::uuid[], $4::bytea[]) w (id, document_id, hash)
), standing as materialized (
  select array_agg(name) as names from generations where state in ('live', 'standby', 'shadow')
)
select w.id, coalesce(h.text, c.text, p.text) as text
from wanted w
left join chunk_history h on h.document_id = w.document_id and h.text_sha256 = w.hash and h.tenant = $1 and sha256(convert_to(h.text, 'UTF8')) = w.hash
left join lateral (
  select x.text from child_chunks x, standing s
  where x.generation = any (s.names) and x.id = w.id and x.document_id = w.document_id and x.tenant = $1 and sha256(convert_to(x.text, 'UTF8')) = w.hash limit 1
) c on h.text is null
left join lateral (
  select x.text from parent_chunks x, standing s
  where x.generation = any (s.names) and x.id = w.id and x.document_id = w.document_id and x.tenant = $1 and sha256(convert_to(x.text, 'UTF8')) = w.hash limit 1
) p on h.text is null
where coalesce(h.text, c.text, p.text) is not null
  and ($5::text[] is null or exists (select from documents d where d.id = w.document_id and may_read($5, d.readers)))

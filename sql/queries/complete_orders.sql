-- Which of these revisions have all their chunk and vector parts.
select s.document_id, s.ord
from unnest($2::uuid[], $3::text[]) k (document_id, ord)
join settled s on s.generation = $1 and s.document_id = k.document_id and s.ord = k.ord::bigint[]
group by s.document_id, s.ord
having count(*) filter (where s.kind = 'chunks') >= max(s.parts) filter (where s.kind = 'chunks')
   and count(*) filter (where s.kind = 'vectors') >= max(s.parts) filter (where s.kind = 'vectors')

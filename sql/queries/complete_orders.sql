-- Which of these revisions have all their chunk and vector parts, and whether older ones have left rows.
select s.document_id, s.ord,
       exists (select from settled o where o.generation = $1 and o.document_id = s.document_id and o.ord < s.ord)
         or exists (select from revision_texts o where o.generation = $1 and o.document_id = s.document_id and o.ord < s.ord) as follows
from unnest($2::uuid[], $3::text[]) k (document_id, ord)
join settled s on s.generation = $1 and s.document_id = k.document_id and s.ord = k.ord::bigint[]
group by s.document_id, s.ord
having count(*) filter (where s.kind = 'chunks') >= max(s.parts) filter (where s.kind = 'chunks')
   and count(*) filter (where s.kind = 'vectors') >= max(s.parts) filter (where s.kind = 'vectors')

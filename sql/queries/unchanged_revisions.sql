-- The subset of these revisions whose content is already visible in the live generation.
select s.document_id, s.ord
from unnest($1::uuid[], $2::text[]) k (document_id, ord)
join revision_states s on s.document_id = k.document_id and s.ord = k.ord::bigint[]
where s.unchanged

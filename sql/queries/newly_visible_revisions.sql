-- Revisions visible in generation $1 that were never visible in $2, the previous live one.
-- Empty if $2 is dropped, since its visible revisions are unknown then.
select v.tenant, v.document_id, d.external_id, r.event_id, r.source, r.accepted_id, v.chunks as n_chunks
from visible v
join documents d on d.id = v.document_id
join document_revisions r on r.document_id = v.document_id and r.ord = v.ord
left join visible b on b.generation = $2 and b.document_id = v.document_id
where v.generation = $1 and (b.ord is null or b.ord < v.ord) and (d.withdrawn is null or d.withdrawn < v.ord)
  and exists (select from generations where name = $2 and state <> 'dropped')
order by v.document_id

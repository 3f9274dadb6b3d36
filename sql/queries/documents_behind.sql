-- Documents visible in generation $1 that are not settled in $2: at most $3 of them, and their number.
-- Settled means visible at the same or a later order, or withdrawn.
select d.id, d.external_id, count(*) over () as total
from visible v
join documents d on d.id = v.document_id
left join visible t on t.generation = $2 and t.document_id = v.document_id
where v.generation = $1 and (t.ord is null or t.ord < v.ord) and (d.withdrawn is null or d.withdrawn < v.ord)
order by v.document_id
limit $3

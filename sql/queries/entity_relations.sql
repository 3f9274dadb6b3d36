-- Visible relations of these entities ($2), heaviest first, one per pair and type.
select r.subject_id, r.type, r.object_id, max(r.weight) as weight, count(distinct r.document_id)::int as documents, (array_agg(r.chunk_id order by r.weight desc, r.chunk_id))[1] as chunk_id
from live_generation g
join relations r on r.generation = g.name and r.tenant = $1 and (r.subject_id = any ($2::uuid[]) or r.object_id = any ($2::uuid[]))
join visible v on v.generation = g.name and v.document_id = r.document_id and v.ord = r.ord
where $4::text[] is null or may_read(r.document_id, r.ord, $4)
group by 1, 2, 3
order by 4 desc, 5 desc, 1, 2, 3
limit $3

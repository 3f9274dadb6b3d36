-- Mentions of an entity.
select m.document_id, d.external_id, coalesce(d.title, d.filename) as title, m.chunk_id, m.name, m.char_start, m.char_end
from live_generation g
join entity_mentions m on m.generation = g.name and m.tenant = $1 and m.entity_id = $2
join visible v on v.generation = g.name and v.document_id = m.document_id and v.ord = m.ord
left join documents d on d.id = m.document_id
where $4::text[] is null or may_read(m.document_id, m.ord, $4)
order by m.document_id, m.char_start, m.id
limit $3

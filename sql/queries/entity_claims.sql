-- Claims of an entity: amounts, dates, identifiers.
select c.property, c.value, c.document_id, c.chunk_id, c.char_start, c.char_end
from live_generation g
join claims c on c.generation = g.name and c.tenant = $1 and c.subject_id = $2
join visible v on v.generation = g.name and v.document_id = c.document_id and v.ord = c.ord
where $4::text[] is null or may_read(c.document_id, c.ord, $4)
order by c.property, c.value, c.document_id, c.char_start
limit $3

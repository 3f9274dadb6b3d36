-- Spans and texts of visible chunks; the live generation wins if several have the same chunk.
select distinct on (c.id) c.id, c.document_id, d.external_id, coalesce(r.revision, d.revision, 0) as revision, c.char_start, c.char_end, c.text
from child_chunks c
join generations g on g.name = c.generation and g.state <> 'dropped'
join visible v on v.generation = c.generation and v.document_id = c.document_id and v.ord = c.ord
left join documents d on d.id = c.document_id
left join document_revisions r on r.document_id = c.document_id and r.ord = c.ord
where c.tenant = $1 and c.id = any ($2::uuid[]) and ($3::text[] is null or may_read(c.document_id, c.ord, $3))
order by c.id, g.state = 'live' desc, g.name

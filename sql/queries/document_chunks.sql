-- Visible chunks of a document in text order, after an ordinal.
select c.id as chunk_id, c.parent_id, c.ordinal, c.kind, c.text, p.section, p.pages, c.spans, c.char_start, c.char_end, c.tokens, c.language
from live_generation g
join visible v on v.generation = g.name and v.document_id = $2 and v.tenant = $1
join child_chunks c on c.generation = g.name and c.document_id = $2 and c.ord = v.ord
left join parent_chunks p on p.generation = g.name and p.document_id = $2 and p.ord = v.ord and p.id = c.parent_id
where c.ordinal > $3 and ($5::text[] is null or may_read($2, v.ord, $5))
order by c.ordinal, c.id
limit $4

-- Visible parent chunks by id.
select p.id, p.document_id, p.text, p.section, p.char_start, p.char_end, p.pages, p.tokens, p.ordinal
from parent_chunks p
join visible v on v.generation = $1 and v.document_id = p.document_id and v.ord = p.ord
where p.generation = $1 and p.id = any ($2::uuid[]) and ($3::text[] is null or may_read(p.document_id, p.ord, $3))

-- Spans and texts of parent chunks in generation $1.
select p.id, p.document_id, p.char_start, p.char_end, p.text
from parent_chunks p join visible v on v.generation = p.generation and v.document_id = p.document_id and v.ord = p.ord
where p.generation = $1 and p.id = any ($2::uuid[])

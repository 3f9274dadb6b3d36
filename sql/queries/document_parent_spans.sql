-- Spans of the parent chunks of document $2 in generation $1.
select p.id, p.char_start, p.char_end
from parent_chunks p join visible v on v.generation = p.generation and v.document_id = p.document_id and v.ord = p.ord
where p.generation = $1 and p.document_id = $2
order by p.ordinal, p.id

-- A stored chunk with its vector, while its revision is visible.
select c.text, c.prefix, c.char_start, c.char_end, n.embedding::text as vector
from child_chunks c
left join chunk_vectors n on n.generation = c.generation and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id
where c.generation = $1 and c.document_id = $2 and c.ord = $3 and c.id = $4

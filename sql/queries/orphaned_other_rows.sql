-- Rows of unknown documents, pointers with missing chunks, and amendments that a withdrawal has ended.
select 'visible' as name, count(*)::int as rows
from visible v
left join documents d on d.id = v.document_id
where d.id is null or v.ord < d.withdrawn
  or v.chunks <> (select count(*) from child_chunks c where c.generation = v.generation and c.document_id = v.document_id and c.ord = v.ord)
union all
select 'chunk_vectors_missing', count(*)::int
from visible v
join child_chunks c on c.generation = v.generation and c.document_id = v.document_id and c.ord = v.ord
where not exists (select from chunk_vectors n where n.generation = c.generation and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id)
union all
select 'chunk_history', count(*)::int from chunk_history h where not exists (select from documents d where d.id = h.document_id)
union all
select 'document_revisions', count(*)::int from document_revisions r where not exists (select from documents d where d.id = r.document_id)
union all
select 'document_amendments', count(*)::int
from document_amendments a
left join documents d on d.id = a.document_id
where d.id is null or a.ord < d.withdrawn
union all
select 'memo', count(*)::int from memo m
where not exists (select from documents d where d.id = m.document_id) and not exists (select from handled h where h.stage = 'receive' and h.event_id = m.document_id)

-- Number of orphaned rows in `the_table`, which the program substitutes.
-- Orphaned: older than the visible or withdrawn order, of an unknown document, and, if no stage has work left
-- ($1), of a revision that is neither visible nor failed.
select count(*)::int
from the_table t
left join documents d on d.id = t.document_id
left join visible v on v.generation = t.generation and v.document_id = t.document_id
where d.id is null or t.ord < v.ord or t.ord < d.withdrawn
  or ($1::bool and t.ord is distinct from v.ord and not exists (
    select from revision_dead_letters b where b.document_id = t.document_id and b.ord = t.ord and b.generation in ('', t.generation)
  ))

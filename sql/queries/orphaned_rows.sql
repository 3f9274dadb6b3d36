-- Rows of the derived tables that nothing accounts for, by table: of revisions older than what is visible or withdrawn, of documents that nobody knows, and, where
-- nothing is on its way ($1), of revisions that are not visible either. `the_table` is put in by the program.
select count(*)::int
from the_table t
left join documents d on d.id = t.document_id
left join visible v on v.generation = t.generation and v.document_id = t.document_id
where d.id is null or t.ord < v.ord or t.ord < d.withdrawn
  or ($1::bool and t.ord is distinct from v.ord and not exists (
    select from revision_dead_letters b where b.document_id = t.document_id and b.ord = t.ord and b.generation in ('', t.generation)
  ))

-- Delete rows of the withdrawn life from `the_table`, which the program substitutes.
delete from the_table t using unnest($1::uuid[]) k (document_id)
where t.document_id = k.document_id
  and not exists (select from documents d where d.id = t.document_id and d.withdrawn is not null and t.ord > d.withdrawn)

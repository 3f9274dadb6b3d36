-- Delete owners of erased documents, unless the documents were sent again.
delete from document_owners o where document_id = any($1)
  and not exists (select from documents d where d.id = o.document_id and d.latest is not null)

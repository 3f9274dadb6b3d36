-- Delete amendments of documents that no longer exist.
delete from document_amendments a where a.document_id = any($1::uuid[]) and not exists (select from documents d where d.id = a.document_id)

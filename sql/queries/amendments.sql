-- Amendments of these documents.
select document_id, ord, accepted_id, said, by_revision from document_amendments where document_id = any($1::uuid[])

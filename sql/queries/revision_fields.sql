-- What the revisions of these documents said of them.
select document_id, ord, accepted_id, fields from document_revisions where document_id = any($1::uuid[])

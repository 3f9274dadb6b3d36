-- Producer fields of all revisions of these documents.
select document_id, ord, accepted_id, fields from document_revisions where document_id = any($1::uuid[])

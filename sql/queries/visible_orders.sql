-- Visible orders of these documents.
select document_id, ord, chunks from visible where generation = $1 and document_id = any($2::uuid[])

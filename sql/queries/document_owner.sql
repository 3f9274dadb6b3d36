-- The source that owns a document.
select source from document_owners where tenant = $1 and document_id = $2

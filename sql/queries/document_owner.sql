-- The source that a document came by.
select source from document_owners where tenant = $1 and document_id = $2

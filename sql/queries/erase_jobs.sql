-- Jobs of these documents, but those of uploads that came later ($2) or that began another life.
delete from jobs j
where j.document_id = any($1) and j.created_at < $2 and not exists (select from document_revisions r where r.document_id = j.document_id and r.accepted_id = j.id)

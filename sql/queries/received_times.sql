-- When the log received the events of these revisions.
select accepted_id, received_at from document_revisions where accepted_id = any($1::uuid[])

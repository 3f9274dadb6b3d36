-- When the log took in the events that these revisions came of.
select accepted_id, received_at from document_revisions where accepted_id = any($1::uuid[])

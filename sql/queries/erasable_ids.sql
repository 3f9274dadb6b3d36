-- Producers' events that spoke of these documents, by their internal ids: what was fetched and staged for them, and letters about them, are named so.
select accepted_id as id from document_revisions where document_id = any($1::uuid[])
union
select accepted_id from document_amendments where document_id = any($1::uuid[])
union
select id from jobs where document_id = any($1::uuid[])
union
select event_id from dead_letters where coalesce(document_id, event_id) = any($1::uuid[])
order by id

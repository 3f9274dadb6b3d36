-- Internal ids of producer events about these documents, by which blobs and dead letters are named.
-- Excludes events of another life, and uploads after $2.
with lives as (
  select r.accepted_id from documents d join document_revisions r on r.document_id = d.id and r.ord > d.withdrawn where d.id = any($1::uuid[])
), named as (
  select accepted_id as id from document_revisions where document_id = any($1::uuid[])
  union
  select accepted_id from document_amendments where document_id = any($1::uuid[])
  union
  select id from jobs where document_id = any($1::uuid[]) and created_at < $2
  union
  select event_id from dead_letters where coalesce(document_id, event_id) = any($1::uuid[])
)
select id from named where id not in (select accepted_id from lives) order by id

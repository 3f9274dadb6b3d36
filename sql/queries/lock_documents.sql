-- Document rows to lock in id order, so that writers cannot deadlock; the caller appends the lock clause.
select id, latest, withdrawn, revision, accepted_id from documents where id = any($1::uuid[]) order by id

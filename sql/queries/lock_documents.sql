-- What decides whether events count, in the order in which everybody locks (the strength of the lock is appended).
select id, latest, withdrawn, revision, accepted_id from documents where id = any($1::uuid[]) order by id

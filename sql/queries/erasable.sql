-- Documents in an erasure scope of which any data is left.
-- A single document also counts if only a key, a dead letter or a job names it; keys of runs and feedback are no
-- documents. Events that failed at ingress belong to the collection that they name, or, if their document is
-- unreadable, to their tenant under their own id.
select id from documents where tenant = $1 and latest is not null and case $2 when 'document' then id::text = $3 when 'collection' then collection = $3 else true end
union
select subject from keystore.keys where tenant = $1 and subject::text = $3 and $2 = 'document' and destroyed_at is null
  and not exists (select from runs r where r.id = subject) and not exists (select from feedback f where subject in (f.id, f.run_id))
union
select document_id from ingress_failures where tenant = $1 and said ->> 'collection' = $3 and $2 = 'collection'
union
select coalesce(document_id, event_id) from dead_letters
where tenant = $1 and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
union
select document_id from jobs where tenant = $1 and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
order by id

-- Documents of a scope of which something is left; one by its id also when nothing but a key, a dead letter or a job tells of it.
select id from documents where tenant = $1 and case $2 when 'document' then id::text = $3 when 'collection' then collection = $3 else true end
union
select subject from keystore.keys where tenant = $1 and subject::text = $3 and $2 = 'document' and destroyed_at is null
union
select document_id from dead_letters where tenant = $1 and document_id is not null and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
union
select document_id from jobs where tenant = $1 and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
order by id

-- The subset of documents $2 that reader names $3 may read.
select id from documents where tenant = $1 and id = any ($2::uuid[]) and latest is not null and may_read($3::text[], readers)

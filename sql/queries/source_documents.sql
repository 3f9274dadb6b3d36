-- External ids of a source's documents that are not withdrawn.
select external_id from documents
where source = $1 and external_id > $2 and latest is not null and (withdrawn is null or withdrawn < latest)
order by external_id limit $3

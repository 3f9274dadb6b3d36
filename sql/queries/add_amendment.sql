-- Store an amendment, or the fields of a late revision that has no row of its own.
insert into document_amendments (document_id, ord, accepted_id, tenant, said, by_revision, received_at, log_topic, log_partition, log_offset)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
where not exists (select from document_revisions r where r.document_id = $1 and r.ord = $2 and $6)
on conflict do nothing

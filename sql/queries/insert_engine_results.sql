-- Store engine results; existing ones stay.
insert into memo (tenant, document_id, engine, input_sha256, answer)
select * from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], $5::bytea[]) a (tenant, document_id, engine, input_sha256, answer)
order by document_id, engine, input_sha256, tenant
on conflict do nothing

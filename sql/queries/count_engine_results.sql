-- Number of these keys that have a cached engine result.
select count(*)
from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) k (tenant, document_id, engine, input_sha256)
join memo m using (document_id, engine, input_sha256, tenant)

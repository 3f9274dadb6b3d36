-- Cached engine results; `n` is the ordinal of the key in the parameters.
select k.n, m.answer
from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) with ordinality k (tenant, document_id, engine, input_sha256, n)
join memo m using (document_id, engine, input_sha256, tenant)

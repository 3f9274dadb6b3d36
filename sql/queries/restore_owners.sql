-- Restore document owners from the log: the last accepted revision decides.
insert into document_owners (document_id, tenant, source) select * from unnest($1::uuid[], $2::text[], $3::text[])
on conflict (tenant, document_id) do update set source = excluded.source

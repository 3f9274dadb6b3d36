-- Declare a source, or redeclare a removed one with a higher epoch.
-- If two tenants declare the same name, the first one keeps it.
insert into sources (name, ce_source, spec, epoch) values ($1, $2, $3, $4)
on conflict (name) do update set spec = excluded.spec, epoch = excluded.epoch, resets = '[]', removed = false, withdraw = false
where sources.spec is null or sources.spec ->> 'tenant' = excluded.spec ->> 'tenant'

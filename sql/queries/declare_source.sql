-- A source from now on; one of the same name that was given up before begins anew above it. Of two tenants that take a name at once, the first has it.
insert into sources (name, ce_source, spec, epoch) values ($1, $2, $3, $4)
on conflict (name) do update set spec = excluded.spec, epoch = excluded.epoch, resets = '[]', removed = false, withdraw = false
where sources.spec is null or sources.spec ->> 'tenant' = excluded.spec ->> 'tenant'

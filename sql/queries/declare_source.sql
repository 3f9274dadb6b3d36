-- A source from now on; one of the same name that was given up before begins anew above it.
insert into sources (name, ce_source, spec, epoch) values ($1, $2, $3, $4)
on conflict (name) do update set spec = excluded.spec, epoch = excluded.epoch, resets = '[]', removed = false, withdraw = false

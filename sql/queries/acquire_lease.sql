-- Acquire the reader lease of a group and topic for $4 seconds.
-- Succeeds if the lease is free, ours, expired, or its process is gone.
insert into log_readers as r (reader, topic, lease_owner, lease_until)
values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
on conflict (reader, topic) do update
set lease_owner = excluded.lease_owner, lease_until = excluded.lease_until
where r.lease_owner is null
   or r.lease_owner = excluded.lease_owner
   or r.lease_until < clock_timestamp()
   -- A killed process loses its LISTEN connection at once. A pooler may hide application names: then no process is
   -- seen, and leases end by time only.
   or (exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || excluded.lease_owner)
       and not exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || r.lease_owner))
returning xact, position

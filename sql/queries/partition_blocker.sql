-- The oldest transaction that has locks on partitions $1 or on their parents $2.
select a.pid, a.application_name as application, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
from pg_locks l
join pg_class c on c.oid = l.relation
join pg_stat_activity a on a.pid = l.pid
where a.pid <> pg_backend_pid() and a.xact_start is not null and c.relnamespace = 'anabranch'::regnamespace
  and (c.relname = any ($1::text[]) or c.relname = any ($2::text[]))
order by a.xact_start
limit 1

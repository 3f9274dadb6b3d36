-- The transaction at the head of a lock queue in which one of ours has waited for $1 seconds.
with recursive ahead (pid) as (
  select unnest(pg_blocking_pids(l.pid))
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
  where not l.granted and a.datname = current_database() and a.application_name like 'anabranch %' and l.waitstart <= clock_timestamp() - make_interval(secs => $1)
  union
  select unnest(pg_blocking_pids(pid)) from ahead
)
select a.pid, a.application_name as application, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds, left(a.query, 200) as query
from ahead join pg_stat_activity a using (pid)
where cardinality(pg_blocking_pids(a.pid)) = 0
order by a.xact_start limit 1

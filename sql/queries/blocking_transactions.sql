-- Transactions that have blocked writes to our tables, or reads, for $1 seconds, oldest first.
select l.pid, coalesce(a.application_name, 'prepared') as application, coalesce(a.state, 'prepared') as state,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8 as seconds, coalesce(left(a.query, 200), p.gid) as query,
       array_agg(distinct c.relname::text order by c.relname::text) as tables, bool_or(l.mode = 'AccessExclusiveLock') as unreadable
from pg_locks l
join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p')
join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('anabranch', 'keystore')
left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts p on l.virtualtransaction = '-1/' || p.transaction
where l.granted and l.database = (select oid from pg_database where datname = current_database()) and l.pid is distinct from pg_backend_pid()
  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and coalesce(a.xact_start, p.prepared) <= clock_timestamp() - make_interval(secs => $1)
group by l.pid, a.application_name, a.state, a.xact_start, a.query, p.prepared, p.gid
order by seconds desc

-- Next records of a reader in (transaction, position) order: at most $4, and about $5 bytes.
-- Records above the snapshot horizon have no payload: a running transaction may still insert records before them.
select xact, position, key, headers::text as headers, appended_at, ripe, case when ripe then value end as value
from (
  select e.*, e.xact < pg_snapshot_xmin(pg_current_snapshot()) as ripe,
         sum(coalesce(octet_length(e.value), 0)) over (order by e.xact, e.position rows between unbounded preceding and 1 preceding) as before
  from events e
  where e.topic = $1 and (e.xact, e.position) > ($2::xid8, $3::bigint)
  order by e.xact, e.position
  limit $4
) following
where coalesce(before, 0) < $5
order by xact, position

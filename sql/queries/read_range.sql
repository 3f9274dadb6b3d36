-- Records of a topic with positions in [$4, $5), after (transaction $2, position $3) in reading order.
select xact, position, key, headers::text as headers, appended_at, value
from (
  select e.*, sum(coalesce(octet_length(e.value), 0)) over (order by e.xact, e.position rows between unbounded preceding and 1 preceding) as before
  from events e
  where e.topic = $1 and (e.xact, e.position) > ($2::xid8, $3::bigint) and e.position >= $4 and e.position < $5
  order by e.xact, e.position
  limit $6
) following
where coalesce(before, 0) < $7
order by xact, position

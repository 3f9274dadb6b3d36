-- Records of some topics after (transaction $2, position $3) in reading order, below the snapshot horizon; large payloads are left out.
select topic, xact, position, key, headers::text as headers, appended_at, coalesce(octet_length(value), 0) as bytes,
       case when octet_length(value) <= $5 then value end as value
from events
where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and xact < pg_snapshot_xmin(pg_current_snapshot())
order by xact, position
limit $4

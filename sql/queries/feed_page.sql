-- Records of topics $1 after (transaction $2, position $3) in reading order, below the snapshot horizon.
-- Payloads over $5 bytes are omitted. Every row, at least one, also has the number of records after the cursor
-- that expired in batches after $6, the last batch, and the horizon.
with page as (
  select topic, xact, position, key, headers::text as headers, appended_at, coalesce(octet_length(value), 0) as bytes,
         case when octet_length(value) <= $5 then value end as value
  from events
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, position
  limit $4
), behind as (
  select records, (first_xact, first_position) > ($2::xid8, $3::bigint) as follows, first_batch > $6::bigint as untold
  from expired_ranges
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and batch > $6::bigint
), lost as (
  -- A range folded across the cursor, or with reported batches, has at least one unreported record.
  select coalesce(sum(case when follows and untold then records when follows or untold then 1 else 0 end), 0)::bigint as missed,
         coalesce(not bool_and(follows and untold), false) as at_least
  from behind
)
select page.*, lost.missed, lost.at_least, (select batch from expired_batches) as last_batch, pg_snapshot_xmin(pg_current_snapshot()) as horizon
from lost left join page on true
order by page.xact, page.position

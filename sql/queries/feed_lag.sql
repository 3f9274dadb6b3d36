-- Number of records after a cursor, counted up to $4.
select count(*) from (
  select from events
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and xact < pg_snapshot_xmin(pg_current_snapshot())
  limit $4
) following

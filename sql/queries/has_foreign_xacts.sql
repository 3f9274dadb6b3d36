-- Whether records have transaction ids of another server, which this one has not reached.
select exists (
  select from topics t cross join lateral (select xact from events where topic = t.topic order by xact desc, position desc limit 1) last
  where last.xact >= pg_snapshot_xmax(pg_current_snapshot())
)

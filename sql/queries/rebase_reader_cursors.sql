-- Move reader cursors of an imported log before the first unfinished record by position.
-- Records finished behind it are delivered again. Unfinished are also records appended here since the import,
-- whose transaction ids are lower.
update log_readers r
set xact = $1::xid8, position = coalesce(
  (
    select min(e.position) - 1 from events e
    where e.topic = r.topic
      and ((e.xact, e.position) > (r.xact, r.position) or e.position > (select max(position) from events where xact >= pg_snapshot_xmax(pg_current_snapshot())))
  ),
  (select max(e.position) from events e where e.topic = r.topic),
  r.position
)
where r.xact > '0'

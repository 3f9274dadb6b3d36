-- Readers go on before the first record that they have not finished, in the order of positions; what they finished behind it comes again. Not finished is also what
-- was appended here since: behind all that came from the other server, though under a lower number.
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

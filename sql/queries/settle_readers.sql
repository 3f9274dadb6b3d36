-- Readers go on before the first record that they have not finished, in the order of positions; what they finished behind it comes again.
update log_readers r
set xact = $1::xid8, position = coalesce(
  (select min(e.position) - 1 from events e where e.topic = r.topic and (e.xact, e.position) > (r.xact, r.position)),
  (select max(e.position) from events e where e.topic = r.topic),
  r.position
)
where r.xact > '0'

-- Delete records past retention that all readers of the topic have finished: at most $1 per topic.
-- The limit keeps the transaction short. Unread records stay, and so does every record of a topic without readers.
-- Positions do not ascend in reading order, so the lowest remaining position bounds `expired_below`.
with expired as (
  select t.topic, e.position
  from topics t
  cross join lateral (select xact, position, appended_at from events where topic = t.topic order by xact, position limit $1) e
  where t.retention_ms is not null and e.appended_at < clock_timestamp() - t.retention_ms * interval '1 millisecond'
    and exists (select from log_readers r where r.topic = t.topic)
    and not exists (select from log_readers r where r.topic = t.topic and (r.xact, r.position) < (e.xact, e.position))
), gone as (
  delete from events where position in (select position from expired) returning topic, xact, position
), below as (
  select g.topic, max(g.position) + 1 as position,
    (select min(e.position) from events e where e.topic = g.topic and e.position not in (select position from expired)) as stays
  from gone g group by g.topic
), cut as (
  update topics t set expired_below = greatest(t.expired_below, least(b.position, b.stays)) from below b where b.topic = t.topic
), {record_expired_ranges}
select count(*) from gone

-- Drop records that are older than their topic keeps them: at most $1 of each topic, the oldest, so that the transaction stays short.
with expired as (
  select e.position
  from topics t
  cross join lateral (select position, appended_at from events where topic = t.topic order by xact, position limit $1) e
  where t.retention_ms is not null and e.appended_at < clock_timestamp() - t.retention_ms * interval '1 millisecond'
), gone as (
  delete from events where position in (select position from expired) returning 1
)
select count(*) from gone

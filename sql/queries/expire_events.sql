-- Drop records that are older than their topic keeps them.
delete from events e using topics t
where t.topic = e.topic and t.retention_ms is not null
  and e.appended_at < clock_timestamp() - t.retention_ms * interval '1 millisecond'

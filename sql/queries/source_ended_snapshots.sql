-- Snapshots whose unread rows are still there, and whether all that they read has passed.
-- A source that never falls silent is waited for ten times as long.
select t.tbl, t.ended,
  extract(epoch from greatest(clock_timestamp() - s.passed_at, (clock_timestamp() - t.ended_at) / 10))::float8 as waiting_s,
  not exists (
    select 1 from jsonb_each_text(t.ended_ends) e
    left join source_progress p on p.source = t.source and p.topic = t.ended_topic and p.partition = e.key::int
    where e.value::bigint > coalesce(p.next_offset, 0)
  ) as complete
from source_tables t join source_states s using (source) where t.source = $1 and t.ended is not null

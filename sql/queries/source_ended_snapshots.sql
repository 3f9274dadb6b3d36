-- Ended snapshots that are not swept, and per partition the range that is not applied yet.
select t.table_name, t.ended, t.ended_topic as topic, (
  select coalesce(jsonb_object_agg(e.key, jsonb_build_array(coalesce(p.next_offset, 0), e.value::bigint)), '{}')
  from jsonb_each_text(t.ended_ends) e
  left join source_progress p on p.source = t.source and p.topic = t.ended_topic and p.partition = e.key::int
  where e.value::bigint > coalesce(p.next_offset, 0)
) as unread
from source_tables t where t.source = $1 and t.ended is not null

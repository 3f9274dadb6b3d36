-- Dead letters that are open, the oldest first. Events without a readable tenant are anyone's.
select event_id, stage, generation, tenant, log_topic, log_partition, log_offset, record, headers, appended_at
from dead_letters
where coalesce(tenant, $1) = $1 and closed_at is null
  and ($2::uuid[] is null or event_id = any($2)) and ($3::text is null or stage = $3) and ($4::text is null or code = $4)
order by buried_at, event_id

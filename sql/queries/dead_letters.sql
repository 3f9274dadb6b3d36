-- What could not be processed, the latest first. Events without a readable tenant are anyone's.
select
  event_id, stage, nullif(generation, '') as generation, buried_type, document_id, log_topic as topic, log_partition as partition, log_offset as "offset",
  code, detail, remedy, traceback, attempts, producer_event_id, producer_source, buried_at
from dead_letters
where coalesce(tenant, $1) = $1 and closed_at is null and ($2::text is null or stage = $2)
  and ($3::timestamptz is null or (buried_at, event_id) < ($3, $4::uuid))
order by buried_at desc, event_id desc
limit $5

-- Existing claims of these events.
select event_id, claim, payload_sha256, flip, unchanged, reacted, begun, log_topic, log_partition, log_offset
from handled where generation = $1 and stage = $2 and event_id = any($3::uuid[])

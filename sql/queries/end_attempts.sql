-- Record that the current attempts at these reactions have ended.
with unsynced as (
  select set_config('synchronous_commit', 'off', true)
)
update handled h set begun = greatest(h.begun - 1, 0)
from unsynced
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.reacted

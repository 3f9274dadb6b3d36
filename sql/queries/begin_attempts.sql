-- A worker begins to react to these events again. A crash of the worker loses nothing that is committed here; only one of the server could, so nothing waits for its disk.
with unsynced as (
  select set_config('synchronous_commit', 'off', true)
)
update handled h set begun = h.begun + 1
from unsynced
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.reacted

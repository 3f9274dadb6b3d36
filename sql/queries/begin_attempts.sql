-- Record that a worker starts another attempt at these reactions.
-- synchronous_commit = off: a worker crash loses nothing that is committed, and losing a count in a server crash
-- is harmless.
with unsynced as (
  select set_config('synchronous_commit', 'off', true)
)
update handled h set begun = h.begun + 1
from unsynced
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.reacted

-- The door's reaction to these events, of these payloads, is owed once more.
update handled h set reacted = false, begun = 0
from unnest($1::uuid[], $2::text[]) n (event_id, payload_sha256)
where h.generation = '' and h.stage = 'receive' and h.event_id = n.event_id and h.payload_sha256 = n.payload_sha256

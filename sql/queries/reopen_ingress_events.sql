-- Reopen the ingress reaction to these events, if the payload is the same.
update handled h set reacted = false, begun = 0
from unnest($1::uuid[], $2::text[]) n (event_id, payload_sha256)
where h.generation = '' and h.stage = 'receive' and h.event_id = n.event_id and h.payload_sha256 = n.payload_sha256

-- Store visibility changes; a redelivery of the event reads them while the reaction is pending.
update handled h set flip = n.flip::jsonb
from unnest($3::uuid[], $4::text[]) n (event_id, flip)
where h.generation = $1 and h.stage = $2 and h.event_id = n.event_id

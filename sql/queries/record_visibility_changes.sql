-- Keep what became visible with each event, to be told again while its reaction is owed.
update handled h set flip = n.flip::jsonb
from unnest($3::uuid[], $4::text[]) n (event_id, flip)
where h.generation = $1 and h.stage = $2 and h.event_id = n.event_id

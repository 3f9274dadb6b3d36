-- Store which revisions late withdrawals revived; a redelivery reads them while the reaction is pending.
update handled h set revived = n.ord::bigint[]
from unnest($3::uuid[], $4::text[]) n (event_id, ord)
where h.generation = $1 and h.stage = $2 and h.event_id = n.event_id

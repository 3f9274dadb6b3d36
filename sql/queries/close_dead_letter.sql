-- Nothing is left to do about this dead letter; one that was buried again later is open again.
update dead_letters set closed_at = $6, resolution = $4, closed_reason = $5
where event_id = $1 and stage = $2 and generation = $3 and dead_lettered_at <= $6

-- Close a dead letter, unless the event was dead-lettered again after $6.
update dead_letters set closed_at = $6, resolution = $4, closed_reason = $5
where event_id = $1 and stage = $2 and generation = $3 and dead_lettered_at <= $6

-- The attempts at these events ended in order, without a result.
update handled h set begun = greatest(h.begun - 1, 0)
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.reacted

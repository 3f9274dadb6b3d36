-- Mark a building generation as built, so that it can be compared and promoted.
update generations
set state = case when state = 'building' then 'shadow' else state end, barrier = $2, built_at = coalesce(built_at, clock_timestamp())
where name = $1

-- Lease the oldest unleased replay of a hosted stage.
update replays
set lease_owner = $1, lease_until = clock_timestamp() + make_interval(secs => $3), started_at = coalesce(started_at, clock_timestamp()),
    resumed_at = clock_timestamp(), read_at_resume = read
where id = (
  select id from replays
  where state = 'running' and stage || '/' || coalesce(generation, '') = any($2::text[]) and (lease_until is null or lease_until < clock_timestamp())
  order by created_at, id limit 1
  for update skip locked
)
returning *

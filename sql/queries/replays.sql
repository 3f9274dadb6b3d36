-- name: lease_replay
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

-- name: record_replay_progress
-- Store the progress of a replay and renew its lease.
update replays
set places = $3, read = $4, replayed = $5, superseded = $6, buried = $7, resumed_at = coalesce(resumed_at, clock_timestamp()),
    lease_until = case when state = 'running' then clock_timestamp() + make_interval(secs => $8) end,
    lease_owner = case when state = 'running' then lease_owner end
where id = $1 and lease_owner = $2
returning case when state = 'running' then id end

-- name: reopen_ingress_events
-- Reopen the ingress reaction to these events, if the payload is the same.
update handled h set reacted = false, begun = 0
from unnest($1::uuid[], $2::text[]) n (event_id, payload_sha256)
where h.generation = '' and h.stage = 'receive' and h.event_id = n.event_id and h.payload_sha256 = n.payload_sha256

-- name: lease_replay
-- Lease the oldest unleased replay of a hosted stage.
update replays
set lease_owner = $1, lease_until = clock_timestamp() + make_interval(secs => $3), started_at = coalesce(started_at, clock_timestamp()),
    resumed_at = clock_timestamp(), read_at_resume = read
where id = (
  select id from replays
  where state = 'running' and stage || '/' || coalesce(generation, '') = any($2::text[]) and (lease_until is null or lease_until < clock_timestamp())
  order by created_at, id limit 1
  -- Processes that look at once lease different replays instead of waiting for each other.
  for update skip locked
)
returning *

-- name: record_replay_progress
-- Store the progress of a replay and renew its lease.
update replays
set positions = $3, read = $4, replayed = $5, superseded = $6, dead_lettered = $7, resumed_at = coalesce(resumed_at, clock_timestamp()),
    -- A paused or cancelled replay gives its lease up with this last report.
    lease_until = case when state = 'running' then clock_timestamp() + make_interval(secs => $8) end,
    lease_owner = case when state = 'running' then lease_owner end
where id = $1 and lease_owner = $2
returning case when state = 'running' then id end

-- name: reopen_ingress_events
-- Reopen the ingress reaction to these events, if the payload is the same.
update inbox h set is_reaction_done = false, open_attempts = 0
from unnest($1::uuid[], $2::text[]) n (event_id, payload_sha256)
where h.generation = '' and h.stage = 'receive' and h.event_id = n.event_id and h.payload_sha256 = n.payload_sha256

-- name: replay_columns
-- Included columns of a replay, with the rate of the current run.
id, tenant, kind, stage, generation, selection, state, per_second, total, read, replayed, superseded, dead_lettered, error, created_at, started_at, ended_at,
case when state = 'running' and read > read_at_resume
  then (read - read_at_resume) / greatest(extract(epoch from clock_timestamp() - resumed_at), 0.001) end::real as rate

-- name: running_replays
-- Replays that a process has leased, with the number of records read.
select id, read from replays where state = 'running' and lease_until > clock_timestamp()

-- name: insert_replay
-- Store a replay.
insert into replays (id, tenant, kind, stage, generation, selection, per_second, dead_letter_ids, topic, start_offsets, end_offsets, total)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: list_replays
-- One replay of a tenant, or the newest ones, with the rate of the current run.
select {replay_columns}
from replays
where tenant = $1 and ($2::uuid is null or id = $2)
order by created_at desc, id limit $3

-- name: set_replay_state
-- Change the state of a replay that is in one of the states $3.
update replays
set state = $4, resumed_at = null, read_at_resume = read, ended_at = case when $4 = 'cancelled' then clock_timestamp() end
where tenant = $1 and id = $2 and state = any($3)
returning id

-- name: renew_replay_lease
-- Renew the lease of a running replay.
update replays
set lease_until = clock_timestamp() + make_interval(secs => $3)
where id = $1 and lease_owner = $2 and state = 'running'

-- name: finish_replay
-- End a replay, as failed if there is an error.
update replays
set state = case when $3::text is null then 'done' else 'failed' end, error = $3, ended_at = clock_timestamp(), lease_owner = null, lease_until = null
where id = $1 and lease_owner = $2 and state = 'running'

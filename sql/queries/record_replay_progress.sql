-- Store the progress of a replay and renew its lease.
update replays
set places = $3, read = $4, replayed = $5, superseded = $6, buried = $7, resumed_at = coalesce(resumed_at, clock_timestamp()),
    lease_until = case when state = 'running' then clock_timestamp() + make_interval(secs => $8) end,
    lease_owner = case when state = 'running' then lease_owner end
where id = $1 and lease_owner = $2
returning case when state = 'running' then id end

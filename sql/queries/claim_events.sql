-- Claim events and record the first attempt at each; returns the events that this transaction claimed.
-- Ordered inserts, so that two transactions that claim the same events cannot deadlock.
with new as (
  select * from unnest($3::uuid[], $4::text[], $5::int[], $6::bigint[], $7::text[], $8::text[], $9::bool[], $10::uuid[], $11::text[], $12::int[], $13::text[])
    as n (event_id, log_topic, log_partition, log_offset, claim, payload_sha256, unchanged, document_id, ord, part, state)
), claimed as (
  insert into handled (generation, stage, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, unchanged, document_id, ord, part, begun)
  select $1, $2, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, unchanged, document_id, ord::bigint[], part, 1 from new order by event_id
  on conflict do nothing
  returning event_id
), begun as (
  insert into job_stages (generation, document_id, ord, stage, part, state, attempts, log_topic, log_partition, log_offset, started_at, duration_ms)
  select $1, document_id, ord::bigint[], $2, part, state, 1, log_topic, log_partition, log_offset, clock_timestamp(), case when state = 'done' then 0 end
  from new join claimed using (event_id)
  where document_id is not null
  order by document_id, ord, part
  on conflict (generation, document_id, ord, stage, part) do update set attempts = job_stages.attempts + 1, state = excluded.state
)
select event_id from claimed

-- name: inbox_entries
-- Existing claims of these events.
select event_id, claim, payload_sha256, visibility_change, is_unchanged, is_reaction_done, open_attempts, log_topic, log_partition, log_offset, owed_records
from inbox where generation = $1 and stage = $2 and event_id = any($3::uuid[])

-- name: claim_events
-- Claim events and record the first attempt at each; returns the events that this transaction claimed.
-- Ordered inserts, so that two transactions that claim the same events cannot deadlock.
with new as (
  select * from unnest($3::uuid[], $4::text[], $5::int[], $6::bigint[], $7::text[], $8::text[], $9::bool[], $10::uuid[], $11::text[], $12::int[], $13::text[])
    as n (event_id, log_topic, log_partition, log_offset, claim, payload_sha256, is_unchanged, document_id, ord, part, state)
), claimed as (
  insert into inbox (generation, stage, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, is_unchanged, document_id, ord, part, open_attempts)
  select $1, $2, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, is_unchanged, document_id, ord::bigint[], part, 1 from new order by event_id
  -- No error: the caller compares the number of returned rows.
  on conflict do nothing
  returning event_id
-- Status rows for people: one per document part, not per event, so a repeat counts as an attempt.
), started as (
  insert into job_stages (generation, document_id, ord, stage, part, state, attempts, log_topic, log_partition, log_offset, started_at, duration_ms)
  select $1, document_id, ord::bigint[], $2, part, state, 1, log_topic, log_partition, log_offset, clock_timestamp(), case when state = 'done' then 0 end
  from new join claimed using (event_id)
  -- Events of ingress and of shared stages have no document.
  where document_id is not null
  order by document_id, ord, part
  on conflict (generation, document_id, ord, stage, part) do update set attempts = job_stages.attempts + 1, state = excluded.state
)
select event_id from claimed

-- name: record_redelivery
-- Count a redelivery of pending events, as another attempt while fewer than $4 are recorded; returns how often they were
-- delivered, and the records that they owe, of which a chain may have been committed since their claims were read.
with pending_events as (
  select event_id from inbox
  where generation = $1 and stage = $2 and event_id = any($3::uuid[]) and not is_reaction_done
  -- Locked in id order, so that two redeliveries of one batch cannot deadlock.
  order by event_id for update
), noted as (
  update inbox h set deliveries = h.deliveries + 1, open_attempts = greatest(h.open_attempts, least(h.open_attempts + 1, $4))
  from pending_events where h.generation = $1 and h.stage = $2 and h.event_id = pending_events.event_id
  returning h.event_id, h.deliveries, h.owed_records
), counted as (
  update job_stages j set attempts = j.attempts + 1
  from inbox h
  where h.generation = $1 and h.stage = $2 and h.event_id = any($3::uuid[])
    and j.generation = $1 and j.document_id = h.document_id and j.ord = h.ord and j.stage = $2 and j.part = h.part
)
select event_id, deliveries, owed_records from noted

-- name: record_visibility_changes
-- Store visibility changes; a redelivery of the event reads them while the reaction is pending.
update inbox h set visibility_change = n.visibility_change::jsonb
from unnest($3::uuid[], $4::text[]) n (event_id, visibility_change)
where h.generation = $1 and h.stage = $2 and h.event_id = n.event_id

-- name: record_revived_revisions
-- Store which revisions late withdrawals revived; a redelivery reads them while the reaction is pending.
update inbox h set revived_ord = n.ord::bigint[]
from unnest($3::uuid[], $4::text[]) n (event_id, ord)
where h.generation = $1 and h.stage = $2 and h.event_id = n.event_id

-- name: begin_attempts
-- Record that a worker starts another attempt at these reactions.
-- synchronous_commit = off: a worker crash loses nothing that is committed, and losing a count in a server crash
-- is harmless.
with unsynced as (
  select set_config('synchronous_commit', 'off', true)
)
update inbox h set open_attempts = h.open_attempts + 1
from unsynced
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.is_reaction_done

-- name: end_attempts
-- Record that the current attempts at these reactions have ended.
with unsynced as (
  select set_config('synchronous_commit', 'off', true)
)
update inbox h set open_attempts = greatest(h.open_attempts - 1, 0)
from unsynced
where h.generation = any ($1::text[]) and h.stage = $2 and h.event_id = any ($3::uuid[]) and not h.is_reaction_done

-- name: complete_events
-- Mark the reactions of these events as done, or as failed with an error.
with mine as (
  select h.generation, h.event_id, n.attempts, n.error
  -- Repeating this is safe: events that are done already drop out, and their status stays.
  from inbox h join unnest($3::uuid[], $4::int[], $5::text[]) n (event_id, attempts, error) using (event_id)
  where h.generation = any($1::text[]) and h.stage = $2 and not h.is_reaction_done
  order by h.event_id for update of h
), completed as (
  update inbox h set is_reaction_done = true, owed_records = null
  from mine where h.generation = mine.generation and h.stage = $2 and h.event_id = mine.event_id
  returning h.generation, h.document_id, h.ord, h.part, mine.attempts, mine.error
)
update job_stages j
set state = case when s.error is null then 'done' else 'failed' end,
    attempts = greatest(j.attempts, s.attempts),
    duration_ms = extract(epoch from clock_timestamp() - j.started_at) * 1000,
    error = s.error::jsonb
from completed s
where j.generation = s.generation and j.document_id = s.document_id and j.ord = s.ord and j.stage = $2 and j.part = s.part

-- name: newest_admissions
-- Whether the event in $3 is the last that was admitted of its document, among $2, and the one before it; and whether a
-- chain of generation $5 has been committed for it at stage $4. Locked, so that ingress admits nothing about them until
-- the transaction ends, in the order in which it locks.
select o.document_id, o.admitted_id = n.event_id as is_newest, o.previous_id, coalesce(h.chained_in = $5, false) as is_chained
from document_owners o
join unnest($1::text[], $2::uuid[], $3::uuid[]) n (tenant, document_id, event_id) using (tenant, document_id)
left join inbox h on h.generation = '' and h.stage = $4 and h.event_id = n.event_id
order by o.tenant, o.document_id
for share of o

-- name: finished_events
-- The subset of these events that stage $2 has finished in generation $1: ids $3, with document, order, part, and the
-- id of the accepted event that they follow from, since two events of a document may have the same order.
select e.event_id
from unnest($3::uuid[], $4::uuid[], $5::text[], $6::int[], $7::uuid[]) e (event_id, document_id, ord, part, accepted_id)
join job_stages j on j.generation = $1 and j.document_id = e.document_id and j.ord = e.ord::bigint[] and j.stage = $2 and j.part = e.part
join document_revisions r on r.document_id = j.document_id and r.ord = j.ord and r.accepted_id = e.accepted_id
where j.state = 'done'

-- name: complete_ingress
-- Mark these events of stage $1 as applied by a chain of generation $3, and their reactions as done unless they owe the
-- records $4; returns those that were not delivered again since their delivery $5, and whether they were done before.
with mine as (
  select h.event_id, h.is_reaction_done
  from inbox h join unnest($2::uuid[], $5::int[]) n (event_id, delivery) using (event_id)
  where h.generation = '' and h.stage = $1 and h.deliveries = n.delivery
  order by h.event_id for update of h
), completed as (
  update inbox set chained_in = $3, owed_records = n.owed::jsonb, is_reaction_done = n.owed is null
  from unnest($2::uuid[], $4::text[]) n (event_id, owed)
  -- An array, not a join: the planner expects one row of it, and would scan the inbox for each.
  where generation = '' and stage = $1 and inbox.event_id = n.event_id
    and inbox.event_id = any(array(select event_id from mine where not is_reaction_done))
)
select event_id, is_reaction_done from mine

-- name: ended_chains
-- Whether a chain of generation $2 has applied what follows from these events of stage $1. Without those whose chain may
-- still be committed.
select n.event_id, coalesce(h.chained_in = $2, false) as is_applied
from unnest($3::uuid[]) n (event_id)
left join inbox h on h.generation = '' and h.stage = $1 and h.event_id = n.event_id
where h.event_id is null or h.is_reaction_done or h.chained_in is not null

-- name: record_chained_stages
-- Store the status of stages that have finished with an event, in generation $1.
insert into job_stages (generation, document_id, ord, stage, part, state, attempts, log_topic, log_partition, log_offset, started_at, duration_ms)
select $1, document_id, ord::bigint[], stage, part, 'done', 1, log_topic, log_partition, log_offset, started_at, duration_ms
from unnest($2::uuid[], $3::text[], $4::text[], $5::int[], $6::text[], $7::int[], $8::bigint[], $9::timestamptz[], $10::real[])
  n (document_id, ord, stage, part, log_topic, log_partition, log_offset, started_at, duration_ms)
order by document_id, ord, stage, part
on conflict (generation, document_id, ord, stage, part) do update set attempts = job_stages.attempts + 1, state = excluded.state

-- name: store_progress
-- Store how many pages of a document stage $2 has parsed.
update job_stages set pages_done = $5, pages_total = $6
where generation = $1 and stage = $2 and document_id = $3 and ord = $4::bigint[] and part = 1

-- name: prune_inbox
-- Delete claims below the acknowledged prefix.
-- Unhandled claims stay for another 10,000 offsets: on the Postgres log a lower position may come later in reading
-- order.
delete from inbox
where stage = $2 and log_topic = $3 and log_partition = $4 and log_offset < $5 and generation = any($1::text[]) and (is_reaction_done or log_offset < $5 - 10000)

-- name: restore_inbox
-- Restore ingress claims by id and payload hash; their positions in `raw` are unknown.
insert into inbox (generation, stage, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, is_reaction_done)
-- No record has position -1, so every record of these events counts as a repeat.
select '', 'receive', id, 'raw', -1, -1, 'pending', hash, true from unnest($1::uuid[], $2::text[]) d (id, hash)
on conflict do nothing

-- name: mark_reactions_done
-- Mark events of topic $3 as handled by stage $2 of generation $1, if topics $4 contain their effects.
-- Only on the Postgres log. Events that are erased, or older than $5, count as handled. Ingress
-- emits events under the missing keys $6 again with the same id, so they are not marked, and their effects are no evidence.
with missing as (
  select unnest($6::text[]) as id
)
insert into inbox as h (generation, stage, event_id, log_topic, log_partition, log_offset, claim, is_reaction_done)
-- A producer's retry may have appended an event twice; ON CONFLICT accepts each row once.
select distinct on (e.headers ->> 'ce_id') $1, $2, (e.headers ->> 'ce_id')::uuid, e.topic, 0, e.position, 'pending', true
from events e
where e.topic = $3
  and not exists (select from missing where missing.id = e.headers ->> 'ce_keyid')
  and (
    exists (
      select from events c
      where c.topic = any ($4::text[]) and c.headers ->> 'ce_causationid' = e.headers ->> 'ce_id'
        and not exists (select from missing where missing.id = c.headers ->> 'ce_keyid')
    )
    or e.appended_at < clock_timestamp() - $5::interval
    or exists (select from keystore.keys k where k.id::text = e.headers ->> 'ce_keyid' and k.destroyed_at is not null)
  )
order by e.headers ->> 'ce_id', e.position
on conflict (generation, stage, event_id) do update set is_reaction_done = true

-- name: engine_results
-- Cached engine results; `n` is the ordinal of the key in the parameters.
select k.n, m.result
from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) with ordinality k (tenant, document_id, engine, input_sha256, n)
join engine_results m using (document_id, engine, input_sha256, tenant)

-- name: insert_engine_results
-- Store engine results; existing ones stay.
insert into engine_results (tenant, document_id, engine, input_sha256, result)
select * from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], $5::bytea[]) a (tenant, document_id, engine, input_sha256, result)
-- Ordered, so that two workers that store the same results cannot deadlock.
order by document_id, engine, input_sha256, tenant
on conflict do nothing

-- name: count_engine_results
-- Number of these keys that have a cached engine result.
select count(*)
from unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) k (tenant, document_id, engine, input_sha256)
join engine_results m using (document_id, engine, input_sha256, tenant)

-- name: delete_claims
-- Delete claims, so that the events are processed as if they were new.
delete from inbox where generation = $1 and stage = $2 and event_id = any($3)

-- Mark the reactions of these events as done, or as failed with an error.
with mine as (
  select h.generation, h.event_id, n.attempts, n.error
  from handled h join unnest($3::uuid[], $4::int[], $5::text[]) n (event_id, attempts, error) using (event_id)
  where h.generation = any($1::text[]) and h.stage = $2 and not h.reacted
  order by h.event_id for update of h
), settled as (
  update handled h set reacted = true
  from mine where h.generation = mine.generation and h.stage = $2 and h.event_id = mine.event_id
  returning h.generation, h.document_id, h.ord, h.part, mine.attempts, mine.error
)
update job_stages j
set state = case when s.error is null then 'done' else 'failed' end,
    attempts = greatest(j.attempts, s.attempts),
    duration_ms = extract(epoch from clock_timestamp() - j.started_at) * 1000,
    error = s.error::jsonb
from settled s
where j.generation = s.generation and j.document_id = s.document_id and j.ord = s.ord and j.stage = $2 and j.part = s.part

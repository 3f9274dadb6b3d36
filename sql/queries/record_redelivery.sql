-- Count a redelivery of pending events as another attempt, while fewer than $4 are recorded.
with owed as (
  select event_id from handled
  where generation = $1 and stage = $2 and event_id = any($3::uuid[]) and begun < $4 and not reacted
  order by event_id for update
), noted as (
  update handled h set begun = h.begun + 1
  from owed where h.generation = $1 and h.stage = $2 and h.event_id = owed.event_id
)
update job_stages j set attempts = j.attempts + 1
from handled h
where h.generation = $1 and h.stage = $2 and h.event_id = any($3::uuid[])
  and j.generation = $1 and j.document_id = h.document_id and j.ord = h.ord and j.stage = $2 and j.part = h.part

-- Count another attempt at reactions that are still owed.
update job_stages j set attempts = j.attempts + 1
from handled h
where h.generation = $1 and h.stage = $2 and h.event_id = any($3::uuid[])
  and j.generation = $1 and j.document_id = h.document_id and j.ord = h.ord and j.stage = $2 and j.part = h.part

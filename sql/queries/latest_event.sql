-- Latest known event of a document: its latest job, or its latest dead letter at ingress.
select event_id
from (
  select id as event_id, created_at as known_at from jobs where tenant = $1 and document_id = $2 and ($3::text[] is null or asked_by = $4::text)
  union all
  select event_id, dead_lettered_at from dead_letters where tenant = $1 and document_id = $2 and stage = 'receive' and closed_at is null and $3::text[] is null
) every
order by known_at desc
limit 1

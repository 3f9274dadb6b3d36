-- Open dead letters, oldest first. Events without a readable tenant belong to every tenant.
-- For document $5 also those whose event does not name it, found by their job.
select event_id, stage, generation, tenant, log_topic, log_partition, log_offset, record, headers, appended_at
from dead_letters l
where coalesce(tenant, 'default') = $1 and closed_at is null
  and ($2::uuid[] is null or event_id = any($2)) and ($3::text is null or stage = $3) and ($4::text is null or code = $4)
  and ($5::uuid is null or document_id = $5
    or document_id is null and exists (select from jobs j where j.id = l.event_id and j.tenant = $1 and j.document_id = $5))
order by dead_lettered_at, event_id

-- name: dead_letters
-- Open dead letters with the names of their documents, in a `PageOrder` after the row of $3 and $4.
-- Names come from the document, or from the event itself if it failed at ingress. Events without a readable tenant
-- belong to the default tenant. $7 part of the error or of a name of the document,
-- ids from $8 to $9.
select
  l.event_id, l.stage, nullif(l.generation, '') as generation, l.original_type, l.document_id, l.log_topic as topic, l.log_partition as partition, l.log_offset as "offset",
  l.code, l.detail, l.remedy, l.traceback, l.attempts, l.producer_event_id, l.producer_source, l.dead_lettered_at,
  coalesce(l.document_summary ->> 'external_id', d.external_id) as external_id, coalesce(l.document_summary ->> 'title', d.title) as title,
  coalesce(l.document_summary ->> 'filename', d.filename) as filename, coalesce(l.document_summary ->> 'source_uri', d.source_uri) as source_uri,
  {sort_key} as sort_value
from dead_letters l
left join documents d on d.id = l.document_id and d.tenant = $1
where coalesce(l.tenant, 'default') = $1 and l.closed_at is null and ($2::text is null or l.stage = $2) and ($6::text is null or l.code = $6)
  and ($3::{sort_type} is null or ({sort_key}, l.event_id) {beyond} ($3, $4::uuid))
  and ($7::text is null or strpos(lower(concat_ws(chr(10), l.code, l.detail, l.document_summary ->> 'external_id', d.external_id, l.document_summary ->> 'title', d.title,
    l.document_summary ->> 'filename', d.filename)), lower($7)) > 0)
  and ($8::uuid is null or l.event_id between $8 and $9::uuid)
order by {sort_key} {direction}, l.event_id {direction}
limit $5

-- name: dead_letter_counts
-- Number of open dead letters per stage. Events without a readable tenant belong to every tenant.
select stage, count(*)::int as events from dead_letters where ($1::text is null or coalesce(tenant, 'default') = $1) and closed_at is null group by stage order by stage

-- name: dead_letter_causes
-- Open dead letters by cause.
select stage, code, count(*)::int as events, min(dead_lettered_at) as first, max(dead_lettered_at) as last, (array_agg(detail order by dead_lettered_at desc))[1] as latest_detail,
  (array_agg(remedy order by dead_lettered_at desc))[1] as remedy
from dead_letters
where coalesce(tenant, 'default') = $1 and closed_at is null
group by stage, code
order by events desc, stage, code

-- name: open_dead_letters
-- Open dead letters, oldest first. Events without a readable tenant belong to every tenant.
-- For document $5 also those whose event does not name it, found by their job.
select event_id, stage, nullif(generation, '') as generation, tenant, log_topic, log_partition, log_offset,
  record ->> 'key' as record_key, headers ->> 'key' as headers_key, appended_at
from dead_letters l
where coalesce(tenant, 'default') = $1 and closed_at is null
  and ($2::uuid[] is null or event_id = any($2)) and ($3::text is null or stage = $3) and ($4::text is null or code = $4)
  and ($5::uuid is null or document_id = $5
    or document_id is null and exists (select from jobs j where j.id = l.event_id and j.tenant = $1 and j.document_id = $5))
order by dead_lettered_at, event_id

-- name: upsert_dead_letter
-- Store a dead letter; a repeated one replaces the details and adds its attempts.
insert into dead_letters as l (
  event_id, stage, generation, original_type, tenant, document_id, log_topic, log_partition, log_offset, code, detail, remedy, traceback, attempts, record,
  producer_event_id, producer_source, dead_lettered_at, headers, appended_at, document_summary)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
on conflict (event_id, stage, generation) do update set
  code = excluded.code, detail = excluded.detail, remedy = excluded.remedy, traceback = excluded.traceback, attempts = l.attempts + excluded.attempts,
  record = excluded.record, dead_lettered_at = excluded.dead_lettered_at, headers = excluded.headers, appended_at = excluded.appended_at,
  document_summary = excluded.document_summary, closed_at = null, resolution = null, closed_reason = null
-- The same event read again is not newer and changes nothing; a failed redrive reopens.
where excluded.dead_lettered_at > l.dead_lettered_at

-- name: close_dead_letter
-- Close a dead letter, unless the event was dead-lettered again after $6.
update dead_letters set closed_at = $6, resolution = $4, closed_reason = $5
where event_id = $1 and stage = $2 and generation = $3 and dead_lettered_at <= $6

-- Open dead letters, newest first, with the names of their documents.
-- Names come from the document, or from the event itself if it failed at ingress. Events without a readable tenant
-- belong to the default tenant.
select
  l.event_id, l.stage, nullif(l.generation, '') as generation, l.buried_type, l.document_id, l.log_topic as topic, l.log_partition as partition, l.log_offset as "offset",
  l.code, l.detail, l.remedy, l.traceback, l.attempts, l.producer_event_id, l.producer_source, l.dead_lettered_at,
  coalesce(l.said ->> 'external_id', d.external_id) as external_id, coalesce(l.said ->> 'title', d.title) as title,
  coalesce(l.said ->> 'filename', d.filename) as filename, coalesce(l.said ->> 'source_uri', d.source_uri) as source_uri
from dead_letters l
left join documents d on d.id = l.document_id and d.tenant = $1
where coalesce(l.tenant, 'default') = $1 and l.closed_at is null and ($2::text is null or l.stage = $2)
  and ($3::timestamptz is null or (l.dead_lettered_at, l.event_id) < ($3, $4::uuid))
order by l.dead_lettered_at desc, l.event_id desc
limit $5

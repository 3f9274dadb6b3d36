-- Status of an event without a revision: its job, claims, dead letter, and whether a later event won.
-- $2 internal id, $3 and $4 the producer's id and source, $5 the id of the accepted event. Of erased events only
-- the id is known. An event without a job belongs to the tenant if its document does, or if it was addressed by
-- the producer's id, from which its internal id is derived. A caller with limited access ($6, $7) sees its own
-- events and those of documents it may read.
select
  coalesce(j.document_id, l.document_id) as document_id, coalesce(j.external_id, d.external_id, l.said ->> 'external_id') as external_id,
  (j.id is not null or h.event_id is not null and (d.id is not null or $3 is not null))
    and ($6::text[] is null or j.asked_by = $7::text or (d.latest is not null and may_read($6, d.readers))) as known, h.log_topic, h.log_partition, h.log_offset, coalesce(h.reacted, false) as passed_on,
  coalesce(d.accepted_id = $2 and d.withdrawn = d.latest, false) as withdraws,
  exists (select from document_amendments a where a.accepted_id = $2 and not a.by_revision) and coalesce(behind.claim <> 'superseded', true) as amends,
  coalesce(behind.claim = 'superseded' or later.log_offset > h.log_offset, false) as overtaken,
  case when l.event_id is not null and ($6::text[] is null or j.asked_by = $7) then jsonb_build_object(
    'stage', l.stage, 'attempts', l.attempts, 'topic', l.log_topic, 'partition', l.log_partition, 'offset', l.log_offset,
    'code', l.code, 'detail', l.detail, 'remedy', l.remedy
  ) end as burial
from (select 1) one
left join jobs j on j.id = $2 and j.tenant = $1
left join handled h on h.generation = '' and h.stage = 'receive' and h.event_id = $2 and h.payload_sha256 is distinct from 'erased'
left join lateral (
  select * from dead_letters
  where coalesce(tenant, 'default') = $1 and (event_id = $2 or (producer_source = $4 and producer_event_id = $3))
    and coalesce(resolution, 'discarded') = 'discarded'
  order by dead_lettered_at desc limit 1
) l on true
left join lateral (
  select claim, document_id from generations g join handled on generation = g.name and stage = 'transcribe' and event_id = $5 limit 1
) behind on true
left join documents d on d.id = coalesce(j.document_id, behind.document_id) and d.tenant = $1
left join handled later on later.generation = '' and later.stage = 'receive' and later.event_id = d.accepted_id and later.log_partition = h.log_partition
limit 1

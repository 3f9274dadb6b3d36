-- A discarded event has failed for good: without its dead letter the revision would appear to be in progress
-- forever.
set local search_path = anabranch, extensions, public;

create or replace view revision_dead_letters as
select l.event_id, l.stage, l.generation, l.buried_type, l.tenant, l.document_id, l.log_topic, l.log_partition, l.log_offset, l.code, l.detail, l.remedy,
  l.traceback, l.attempts, l.record, l.producer_event_id, l.producer_source, l.dead_lettered_at,
  coalesce(
    p.ord,
    (select max(ord) from document_revisions where document_id = l.document_id and received_at <= l.dead_lettered_at),
    (select min(ord) from document_revisions where document_id = l.document_id)
  ) as ord
from dead_letters l
left join lateral (
  select ord from revision_positions
  where document_id = l.document_id and stage = l.stage and log_topic = l.log_topic and log_partition = l.log_partition and log_offset = l.log_offset
    and (generation = '' or generation = l.generation)
  limit 1
) p on true
where l.document_id is not null and l.stage <> 'receive' and (l.closed_at is null or l.resolution = 'discarded');

-- Stage events of a document, for each revision and generation, in chronological order.
with revisions as (
  select r.document_id, r.ord, r.revision, r.received_at, r.log_topic, r.log_partition, r.log_offset from document_revisions r join documents d on d.id = r.document_id where r.tenant = $1 and r.document_id = $2 and may_read($5::text[], d.readers)
), lines as (
  select r.revision, j.generation, j.stage, j.part, j.state, j.attempts, j.log_topic, j.log_partition, j.log_offset, j.started_at, j.duration_ms, j.error
  from revisions r join job_stages j on j.document_id = r.document_id and j.ord = r.ord
  union all
  select r.revision, '', 'receive', 1, 'done', 1, h.log_topic, h.log_partition, h.log_offset, r.received_at, null, null
  from revisions r join document_revisions d on d.document_id = r.document_id and d.ord = r.ord
  join handled h on h.generation = '' and h.stage = 'receive' and h.event_id = d.accepted_id
  union all
  select b.revision, b.generation, b.stage, 1, 'failed', b.attempts, b.log_topic, b.log_partition, b.log_offset, b.dead_lettered_at, null,
         jsonb_build_object('code', b.code, 'detail', b.detail, 'remedy', b.remedy)
  from (
    select l.*, r.revision from dead_letters l left join revision_dead_letters x on x.event_id = l.event_id and x.stage = l.stage and x.generation = l.generation
    left join revisions r on r.ord = x.ord where l.document_id = $2 and coalesce(l.tenant, 'default') = $1 and ($5::text[] is null or exists (select from revisions))
  ) b
  where not exists (
    select from revisions r join job_stages j on j.document_id = r.document_id and j.ord = r.ord
    where j.stage = b.stage and j.log_topic = b.log_topic and j.log_partition = b.log_partition and j.log_offset = b.log_offset and j.error is not null
  )
)
select revision, nullif(generation, '') as generation, stage, part, state, attempts, log_topic as topic, log_partition as partition, log_offset as "offset",
       started_at, duration_ms, error
from lines order by started_at, revision, generation, stage, part
offset $3 limit $4

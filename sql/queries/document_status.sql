-- One revision with all inputs of its status: by accepted event ($2), or the latest of document $3.
select
  s.document_id, s.ord, s.revision, s.accepted_id, s.unchanged, s.state, s.generation, s.visible, s.chunks,
  d.external_id, r.content_sha256, r.received_at, r.log_topic, r.log_partition, r.log_offset,
  h.log_topic as door_topic, h.log_partition as door_partition, h.log_offset as door_offset,
  t.warnings, t.log_topic as text_topic, t.log_partition as text_partition, t.log_offset as text_offset,
  (
    select coalesce(jsonb_agg(to_jsonb(x)), '[]') from (
      select kind, count(*) as have, max(parts) as parts, min(log_topic) as topic, min(log_partition) as partition, min(log_offset) as "offset"
      from settled where generation = s.generation and document_id = s.document_id and ord = s.ord group by kind
    ) x
  ) as settled,
  (
    select coalesce(jsonb_agg(to_jsonb(x) order by x.stage, x.part), '[]') from (
      select stage, part, state, attempts, log_topic as topic, log_partition as partition, log_offset as "offset", started_at, duration_ms, error
      from job_stages where generation in ('', s.generation) and document_id = s.document_id and ord = s.ord
    ) x
  ) as jobs,
  (
    select coalesce(jsonb_agg(to_jsonb(x) order by x.dead_lettered_at), '[]') from (
      select stage, attempts, log_topic as topic, log_partition as partition, log_offset as "offset", code, detail, remedy, dead_lettered_at
      from revision_dead_letters where generation in ('', s.generation) and document_id = s.document_id and ord = s.ord
    ) x
  ) as burials,
  (select coalesce(sum(tokens), 0)::int from child_chunks where generation = s.generation and document_id = s.document_id and ord = coalesce(s.visible, s.ord)) as tokens
from revision_states s
join documents d on d.id = s.document_id
join document_revisions r on r.document_id = s.document_id and r.ord = s.ord
left join handled h on h.generation = '' and h.stage = 'receive' and h.event_id = s.accepted_id
left join revision_texts t on t.generation = s.generation and t.document_id = s.document_id and t.ord = s.ord
where s.tenant = $1 and may_read($4::text[], d.readers) and ($2::uuid is null or s.accepted_id = $2) and ($3::uuid is null or (s.document_id = $3 and s.ord = (select max(ord) from document_revisions where document_id = $3)))

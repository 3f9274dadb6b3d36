-- Store a dead letter; a repeated one replaces the details and adds its attempts.
insert into dead_letters as l (
  event_id, stage, generation, buried_type, tenant, document_id, log_topic, log_partition, log_offset, code, detail, remedy, traceback, attempts, record,
  producer_event_id, producer_source, dead_lettered_at, headers, appended_at, said)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
on conflict (event_id, stage, generation) do update set
  code = excluded.code, detail = excluded.detail, remedy = excluded.remedy, traceback = excluded.traceback, attempts = l.attempts + excluded.attempts,
  record = excluded.record, dead_lettered_at = excluded.dead_lettered_at, headers = excluded.headers, appended_at = excluded.appended_at,
  said = excluded.said, closed_at = null, resolution = null, closed_reason = null
where excluded.dead_lettered_at > l.dead_lettered_at

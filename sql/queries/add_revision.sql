-- Store an accepted revision.
insert into document_revisions (
  document_id, ord, revision, tenant, title, filename, media_type, content_sha256, blob, fields, forced, event_id, source, accepted_id, received_at,
  log_topic, log_partition, log_offset, readers)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
on conflict do nothing

-- Restore ingress claims by id and payload hash; their positions in `raw` are unknown.
insert into handled (generation, stage, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, reacted)
select '', 'receive', id, 'raw', -1, -1, 'owed', hash, true from unnest($1::uuid[], $2::text[]) d (id, hash)
on conflict do nothing

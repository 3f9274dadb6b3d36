-- Accepted revisions that these events revived.
select h.event_id as by, r.document_id, r.ord, r.tenant, r.source, r.content_sha256, r.blob, r.fields, r.event_id, r.accepted_id, r.received_at, d.numbered
from handled h
join documents d on d.id = h.document_id
join document_revisions r on r.document_id = h.document_id and r.ord = h.revived
where h.generation = $1 and h.stage = $2 and h.event_id = any($3::uuid[]) and not h.reacted

-- Delete jobs of these documents, except those of unread uploads and of another life.
-- A job may be opened after its event was read, so one before $2, or with a handled event, counts as read. Ingress
-- keeps the event id.
with gone as (
  delete from jobs j
  where j.document_id = any($1) and not exists (select from document_revisions r where r.document_id = j.document_id and r.accepted_id = j.id)
    and (j.created_at < $2 or exists (select from handled h where h.generation = '' and h.stage = 'receive' and h.event_id = j.id and h.reacted))
  returning j.id
)
update handled h set payload_sha256 = 'erased' from gone g where h.generation = '' and h.stage = 'receive' and h.event_id = g.id

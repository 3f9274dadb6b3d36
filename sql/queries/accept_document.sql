-- Store a revision as the latest of its document.
-- Readers set by an amendment are first copied to the revisions that they applied to.
with kept as (
  update document_revisions r set readers = d.readers from documents d where d.id = $1 and r.document_id = $1 and 'readers' = any (d.amended)
)
update documents set
  tenant = $2, latest = $3, external_id = $4, source = $5, source_uri = $6, filename = $7, media_type = $8, title = $9, language = $10, collection = $11,
  tags = $12, metadata = $13, document_date = $14, content_sha256 = $15, blob = $16, event_id = $17, accepted_id = $18, received_at = $19, numbered = $20,
  revision = $21, readers = $22
where id = $1

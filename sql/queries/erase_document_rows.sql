-- Delete documents that have had no revision since their withdrawal.
-- If events stay readable ($2), reduce them to bare tombstones, or a rebuild would restore the documents.
with gone as (
  delete from documents where id = any($1) and latest <= withdrawn and not $2
)
update documents d set
  (external_id, source, numbered, source_uri, filename, media_type, title, language, collection, tags, metadata, document_date, content_sha256, blob) =
    (null, '', false, null, null, null, null, null, null, '{}', '{}', null, null, null),
  (latest, revision, event_id, accepted_id, received_at, amended, readers) = (null, 0, null, null, null, '{}', '{}')
where id = any($1) and latest <= withdrawn and $2

-- Store the tombstone of a document, which keeps older revisions out; a later revision stays the latest.
update documents set
  withdrawn = $3,
  (tenant, latest, external_id, source, event_id, accepted_id, received_at, numbered) = (
    select tenant, latest, external_id, source, event_id, accepted_id, received_at, numbered where documents.latest > $3
    union all
    select $2, $3, coalesce($4, external_id), $5, $6, $7, $8, $9 where documents.latest is null or documents.latest <= $3
  )
where id = $1

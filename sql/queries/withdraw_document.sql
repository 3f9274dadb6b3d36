-- The tombstone of a document: whatever is older stays away.
update documents set
  tenant = $2, latest = $3, withdrawn = $3, external_id = coalesce($4, external_id), source = $5, event_id = $6, accepted_id = $7, received_at = $8,
  numbered = $9
where id = $1

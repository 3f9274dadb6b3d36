-- Remove withdrawn revisions from the visible ones.
delete from visible v using unnest($2::uuid[], $3::text[]) k (document_id, ord)
where v.generation = $1 and v.document_id = k.document_id and v.ord < k.ord::bigint[]

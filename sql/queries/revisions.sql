-- Revisions of a document, newest first.
select
  r.revision, s.state, coalesce(r.title, t.title, r.filename) as title, r.filename, r.media_type, r.content_sha256, r.event_id, r.source, r.received_at,
  r.accepted_id as ingestion_job_id, s.visible is not distinct from r.ord as visible, (r.blob ->> 'size')::bigint as bytes, t.characters, t.pages
from document_revisions r
join documents d on d.id = r.document_id
join revision_states s on s.document_id = r.document_id and s.ord = r.ord
left join revision_texts t on t.generation = s.generation and t.document_id = r.document_id and t.ord = r.ord
where r.tenant = $1 and r.document_id = $2 and ($3::int is null or r.revision < $3)
  and may_read($5::text[], d.readers) and ('readers' = any (d.amended) or may_read($5, r.readers))
order by r.ord desc
limit $4

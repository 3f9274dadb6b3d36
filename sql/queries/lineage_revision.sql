-- A revision with its text: by order ($3), else the one visible in the live generation, else the latest.
select
  r.document_id, r.tenant, r.ord, r.revision, r.source, r.event_id, r.accepted_id, r.content_sha256, r.blob, r.log_topic, r.log_partition, r.log_offset,
  d.external_id, coalesce(t.title, r.title, r.filename, d.title) as title, t.generation, t.text_sha256, t.markdown
from document_revisions r
join documents d on d.id = r.document_id
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = r.document_id
left join revision_texts t on t.generation = coalesce($4, g.name) and t.document_id = r.document_id and t.ord = r.ord
where r.tenant = $1 and r.document_id = $2 and ($3::bigint[] is null or r.ord = $3)
  and ($5::text[] is null or may_read(r.document_id, r.ord, $5))
order by r.ord = v.ord desc nulls last, r.ord desc
limit 1

-- Documents, the latest received first, with the state of their latest revision. Withdrawn ones only where that state is asked for, or the id ($2).
select
  d.id as document_id, d.external_id, nullif(d.source, '') as source, d.source_uri, d.filename, coalesce(d.media_type, t.media_type) as media_type,
  coalesce(d.title, t.title, d.filename) as title, coalesce(d.language, t.language) as language, d.collection, d.tags, d.metadata, d.document_date,
  d.content_sha256, d.blob, d.revision, d.received_at, s.accepted_id as ingestion_job_id,
  shown.revision as visible_revision, s.state, s.generation, coalesce(s.chunks, 0) as chunks_count, t.characters, t.pages,
  coalesce(t.warnings, '[]') as warnings
from documents d
join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
left join document_revisions shown on shown.document_id = d.id and shown.ord = s.visible
left join revision_texts t on t.generation = s.generation and t.document_id = d.id and t.ord = coalesce(s.visible, s.ord)
where d.tenant = $1
  and ($2::uuid is null or d.id = $2)
  and ($3::text is null or d.external_id = $3)
  and ($4::text is null or d.collection = $4)
  and ($5::text is null or d.tags @> array[$5])
  and case when $6::text is not null then s.state = $6 else $2 is not null or s.state <> 'withdrawn' end
  and ($7::timestamptz is null or (d.received_at, d.id) < ($7, $8::uuid))
order by d.received_at desc, d.id desc
limit $9

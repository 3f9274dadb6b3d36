-- Documents, most recently received first, with the state of their latest revision.
-- Withdrawn ones only by state or id ($2). Includes documents that failed at ingress, if their id is known; $10 is
-- the id derived from external id $3. $11 reader names, $12 caller id: a caller with limited access sees only its
-- own ingress events.
select * from (
  select
    d.id as document_id, d.external_id, nullif(d.source, '') as source, d.source_uri, d.filename, coalesce(d.media_type, t.media_type) as media_type,
    coalesce(d.title, t.title, d.filename) as title, coalesce(d.language, t.language) as language, d.collection, d.tags, d.metadata, d.document_date,
    d.content_sha256, d.blob, d.revision, d.received_at, s.accepted_id as ingestion_job_id,
    shown.revision as visible_revision, s.state, s.generation, coalesce(s.chunks, 0) as chunks_count, t.characters, t.pages,
    coalesce(t.warnings, '[]') as warnings,
    case when s.state = 'failed' then (
      select jsonb_build_object('code', b.code, 'detail', b.detail, 'remedy', b.remedy)
      from revision_dead_letters b where b.document_id = d.id and b.ord = s.ord and b.generation in ('', s.generation) order by b.dead_lettered_at desc limit 1
      ) end as error, d.readers
  from documents d
  join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
  left join document_revisions shown on shown.document_id = d.id and shown.ord = s.visible
  left join revision_texts t on t.generation = s.generation and t.document_id = d.id and t.ord = coalesce(s.visible, s.ord)
  where d.tenant = $1
    and may_read($11::text[], d.readers) and ($11::text[] is null or 'readers' = any (d.amended) or may_read($11, shown.readers))
    and ($2::uuid is null or d.id = $2)
    and ($3::text is null or d.external_id = $3)
    and ($4::text is null or d.collection = $4)
    and ($5::text is null or d.tags @> array[$5])
    and case when $6::text is not null then s.state = $6 else $2 is not null or s.state <> 'withdrawn' end
  union all
  select
    f.document_id, coalesce(f.external_id, $3), f.source, f.said ->> 'source_uri', f.said ->> 'filename', f.said ->> 'media_type',
    coalesce(f.said ->> 'title', f.said ->> 'filename'), null, f.said ->> 'collection',
    coalesce((select array_agg(t.tag) from jsonb_array_elements_text(f.said -> 'tags') t (tag)), '{}'), '{}', null,
    null, null, 0, f.dead_lettered_at, f.event_id,
    null, 'failed', null, 0, null, null,
    '[]', jsonb_build_object('code', f.code, 'detail', f.detail, 'remedy', f.remedy), null
  from ingress_failures f
  where f.tenant = $1 and ($11::text[] is null or exists (select from jobs j where j.id = f.event_id and j.asked_by = $12::text))
    and ($2::uuid is null or f.document_id = $2)
    and ($3::text is null or f.external_id = $3 or f.document_id = $10::uuid)
    and ($4::text is null or f.said ->> 'collection' = $4) and ($5::text is null or f.said -> 'tags' ? $5) and coalesce($6, 'failed') = 'failed'
) x
where $7::timestamptz is null or (received_at, document_id) < ($7, $8::uuid)
order by received_at desc, document_id desc
limit $9

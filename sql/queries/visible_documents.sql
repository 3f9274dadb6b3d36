-- Documents of tenant $2 visible in generation $1, by id ($3) or name ($4), with their text or its blob.
-- A name is the external id, or else the source URI or file name.
select d.id, n.names, coalesce(r.revision, d.revision, 0) as revision, t.markdown, t.blob ->> 'key' as blob_key
from documents d
cross join lateral (
  select case when d.external_id is not null then array[d.external_id] else array_remove(array[d.source_uri, d.filename], null) end as names
) n
join visible v on v.generation = $1 and v.document_id = d.id
join revision_texts t on t.generation = $1 and t.document_id = d.id and t.ord = v.ord
left join document_revisions r on r.document_id = d.id and r.ord = v.ord
where d.tenant = $2 and (d.id = any ($3::uuid[]) or n.names && $4::text[])
order by d.received_at, d.id

-- Documents of tenant $2 as generation $1 shows them: by id ($3) or external id ($4), with how their text was made and where it is.
select d.id, d.external_id, coalesce(r.revision, d.revision, 0) as revision, t.markdown, t.blob ->> 'key' as blob_key
from documents d
join visible v on v.generation = $1 and v.document_id = d.id
join revision_texts t on t.generation = $1 and t.document_id = d.id and t.ord = v.ord
left join document_revisions r on r.document_id = d.id and r.ord = v.ord
where d.tenant = $2 and (d.id = any ($3::uuid[]) or d.external_id = any ($4::text[]))

-- The visible revisions of documents: what they were made of, and whether a later one is on its way.
select v.document_id, v.ord, v.chunks, t.content_sha256, t.how, r.fields,
       exists (select from document_revisions later where later.document_id = v.document_id and later.ord > v.ord and not later.unchanged) as overtaken
from visible v
left join revision_texts t on t.generation = v.generation and t.document_id = v.document_id and t.ord = v.ord
left join document_revisions r on r.document_id = v.document_id and r.ord = v.ord
where v.generation = $1 and v.document_id = any($2::uuid[])

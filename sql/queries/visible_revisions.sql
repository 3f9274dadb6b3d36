-- Visible revisions: inputs, last consecutive revision with the same content, whether a later one differs.
select v.document_id, r.content_sha256, t.how, r.fields, changed.ord is not null as overtaken,
       greatest(v.ord, (
         select max(ord) from document_revisions same
         where same.document_id = v.document_id and same.ord > v.ord and (changed.ord is null or same.ord < changed.ord)
       )) as until
from visible v
left join revision_texts t on t.generation = v.generation and t.document_id = v.document_id and t.ord = v.ord
left join document_revisions r on r.document_id = v.document_id and r.ord = v.ord
left join lateral (
  select min(ord) as ord from document_revisions later
  where later.document_id = v.document_id and later.ord > v.ord
    and (later.forced or later.content_sha256 is distinct from r.content_sha256 or later.fields is distinct from r.fields)
) changed on true
where v.generation = $1 and v.document_id = any($2::uuid[])

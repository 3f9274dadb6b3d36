-- Markdown of the visible revision, or of the latest one with a text while none is visible.
select t.document_id, t.markdown, t.blob ->> 'key' as blob_key
from live_generation g
join revision_texts t on t.generation = g.name and t.document_id = $2 and t.tenant = $1
join documents d on d.id = t.document_id
left join visible v on v.generation = g.name and v.document_id = t.document_id
where (d.withdrawn is null or d.withdrawn < t.ord) and ($3::text[] is null or may_read(t.document_id, t.ord, $3))
order by t.ord = v.ord desc nulls last, t.ord desc
limit 1

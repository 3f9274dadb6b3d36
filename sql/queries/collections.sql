-- Collections of a tenant with their searchable documents, chunks and languages; null is no collection.
select
  d.collection as name, count(*)::int as documents, sum(v.chunks)::int as chunks,
  coalesce(array_agg(distinct coalesce(t.language, d.language)) filter (where coalesce(t.language, d.language) is not null), '{}') as languages
from live_generation g
join visible v on v.generation = g.name and v.tenant = $1
join documents d on d.id = v.document_id
left join revision_texts t on t.generation = g.name and t.document_id = v.document_id and t.ord = v.ord
where $2::text[] is null or may_read(d.id, v.ord, $2)
group by d.collection
order by d.collection nulls last

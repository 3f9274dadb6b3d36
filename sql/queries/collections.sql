-- name: upsert_collection_profile
-- Store the settings that were decided at offset $7 of topic `control`, unless a later decision is stored.
insert into collection_profiles as p (tenant, collection, default_profile, chunking, chunk, extract, decided_at) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (tenant, collection) do update set default_profile = excluded.default_profile, chunking = excluded.chunking, chunk = excluded.chunk,
  extract = excluded.extract, decided_at = excluded.decided_at
where p.decided_at < excluded.decided_at

-- name: insert_collection_deletion
-- Store a deletion. Repeating it has no effect.
insert into collection_deletions (id, tenant, collection, requested_at) values ($1, $2, $3, $4) on conflict do nothing

-- name: complete_collection_deletion
-- Mark a deletion as complete.
update collection_deletions set completed_at = $2 where id = $1

-- name: is_collection_deleted
-- Whether this deletion is complete.
select exists (select from collection_deletions where id = $1 and completed_at is not null)

-- name: collections
-- Collections of tenant $1 with their searchable documents that readers $2 may read, default profile and deletion in
-- progress; null is no collection. With a name $3 only this one, and its latest deletion.
with counted as (
  select
    d.collection as name, count(*)::int as documents, sum(v.chunks)::int as chunks,
    coalesce(array_agg(distinct coalesce(t.language, d.language)) filter (where coalesce(t.language, d.language) is not null), '{}') as languages
  from live_generation g
  join visible v on v.generation = g.name and v.tenant = $1
  join documents d on d.id = v.document_id
  left join revision_texts t on t.generation = g.name and t.document_id = v.document_id and t.ord = v.ord
  where ($2::text[] is null or may_read(d.id, v.ord, $2)) and ($3::text is null or d.collection = $3)
  group by d.collection
), names as (
  select name from counted
  -- A name without documents is for callers only that see the whole tenant.
  union select collection from collection_profiles
  where tenant = $1 and (default_profile is not null or chunk is not null or extract is not null) and $2::text[] is null and ($3::text is null or collection = $3)
  union select collection from collection_deletions
  where tenant = $1 and $2::text[] is null and case when $3::text is null then completed_at is null else collection = $3 end
)
select
  n.name, coalesce(c.documents, 0) as documents, coalesce(c.chunks, 0) as chunks, coalesce(c.languages, '{}') as languages,
  p.default_profile, p.chunking, p.chunk, p.extract, x.id as deletion_id, x.requested_at, x.completed_at
from names n
left join counted c on c.name is not distinct from n.name
left join collection_profiles p on p.tenant = $1 and p.collection = n.name
left join lateral (
  select id, requested_at, completed_at from collection_deletions
  where tenant = $1 and collection = n.name and ($3::text is not null or completed_at is null)
  order by requested_at desc, id limit 1
) x on true
order by n.name nulls last

-- name: collection_processing
-- How documents of collection $2 of tenant $1 are split, and what is extracted from them.
select chunk, extract from collection_profiles where tenant = $1 and collection = $2

-- name: default_profiles
-- Default profiles of the collections $2 of tenant $1 that have one. Readers $3 must be able to read a document.
select p.collection, p.default_profile
from collection_profiles p
where p.tenant = $1 and p.collection = any ($2::text[]) and p.default_profile is not null and ($3::text[] is null or exists (
  select from documents d
  where d.tenant = $1 and d.collection = p.collection and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and may_read($3::text[], d.readers)
))

-- name: deletable_documents
-- Latest orders of the documents of collection $2 of tenant $1 that are not withdrawn. Not of those that the log
-- received after $3: documents, revisions, and moves into the collection. Null: of all.
select d.id, d.latest
from documents d
where d.tenant = $1 and d.collection = $2 and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest)
  and ($3::timestamptz is null or d.received_at <= $3 and not exists (
    select from document_amendments a where a.document_id = d.id and a.received_at > $3 and a.fields ? 'collection'
  ))

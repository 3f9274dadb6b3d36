-- name: add_stubs
-- Insert rows to lock for documents that have none.
insert into documents (id, tenant)
select id, tenant from unnest($1::uuid[], $2::text[]) stub (id, tenant) order by id
on conflict do nothing

-- name: lock_documents
-- Document rows to lock in id order, so that writers cannot deadlock; the caller appends the lock clause.
select id, latest, withdrawn, revision, accepted_id, readers from documents where id = any($1::uuid[]) order by id

-- name: revisions
-- Revisions of a document, newest first.
select
  r.revision, s.state, coalesce(r.title, t.title, r.filename) as title, r.filename, r.media_type, r.content_sha256, r.event_id, r.source, r.received_at,
  r.accepted_id as ingestion_job_id, s.visible is not distinct from r.ord as visible, (r.blob ->> 'size')::bigint as bytes, t.characters, t.pages
from document_revisions r
join documents d on d.id = r.document_id
join revision_states s on s.document_id = r.document_id and s.ord = r.ord
left join revision_texts t on t.generation = s.generation and t.document_id = r.document_id and t.ord = r.ord
where r.tenant = $1 and r.document_id = $2 and ($3::int is null or r.revision < $3)
  and may_read($5::text[], d.readers) and ('readers' = any (d.amended) or may_read($5, r.readers))
order by r.ord desc
limit $4

-- name: revision_file
-- The file of one revision, superseded ones included.
select r.document_id, r.revision, r.filename, r.media_type, r.content_sha256, r.blob
from document_revisions r
join documents d on d.id = r.document_id
where r.tenant = $1 and r.document_id = $2 and r.revision = $3
  and may_read($4::text[], d.readers) and ('readers' = any (d.amended) or may_read($4, r.readers))
order by r.ord desc
limit 1

-- name: latest_revision
-- Latest revision of a document, or a row without order if only a job or an ingress failure knows it. One that ingress
-- has admitted counts before the tables show it.
select coalesce(admitted.numbered, known.numbered) as numbered, external_id, coalesce(admitted.latest, known.latest) as latest
from (
  select numbered, external_id, latest, 1 as place from documents where tenant = $1 and id = $2 and latest is not null
  union all
  select false, external_id, null, 2 from jobs where tenant = $1 and document_id = $2
  union all
  select false, external_id, null, 3 from ingress_failures where tenant = $1 and document_id = $2
  union all
  select numbered, null, latest, 4 from document_owners where tenant = $1 and document_id = $2 and latest is not null
) known
left join document_owners admitted
  on admitted.tenant = $1 and admitted.document_id = $2 and (known.latest is null or admitted.latest > known.latest)
order by place
limit 1

-- name: accept_document
-- Store a revision, as the latest of its document.
-- Readers set by an amendment are first copied to the revisions that they applied to.
with kept as (
  update document_revisions r set readers = d.readers from documents d where d.id = $1 and r.document_id = $1 and 'readers' = any (d.amended)
), latest as (
  update documents set
    tenant = $2, latest = $3, external_id = $4, source = $5, source_uri = $6, filename = $7, media_type = $8, title = $9, language = $10, collection = $11,
    tags = $12, metadata = $13, document_date = $14, content_sha256 = $15, blob = $16, event_id = $17, accepted_id = $18, received_at = $19, numbered = $20,
    revision = $21, readers = $22
  where id = $1
)
insert into document_revisions (
  document_id, ord, revision, tenant, title, filename, media_type, content_sha256, blob, event_id, source, accepted_id, received_at, readers,
  fields, forced, log_topic, log_partition, log_offset)
values ($1, $3, $21, $2, $9, $7, $8, $15, $16, $17, $5, $18, $19, $22, $23, $24, $25, $26, $27)
on conflict do nothing

-- name: withdraw_document
-- Store the tombstone of a document, which keeps older revisions out; a later revision stays the latest.
update documents set
  withdrawn = $3,
  -- Exactly one branch returns a row: the fields of a later revision stay as they are.
  (tenant, latest, external_id, source, event_id, accepted_id, received_at, numbered) = (
    select tenant, latest, external_id, source, event_id, accepted_id, received_at, numbered where documents.latest > $3
    union all
    select $2, $3, coalesce($4, external_id), $5, $6, $7, $8, $9 where documents.latest is null or documents.latest <= $3
  )
where id = $1

-- name: revived_revisions
-- Accepted revisions that these events revived.
select h.event_id as by, r.document_id, r.ord, r.tenant, r.source, r.content_sha256, r.blob, r.fields, r.event_id, r.accepted_id, r.received_at, d.numbered
from inbox h
join documents d on d.id = h.document_id
join document_revisions r on r.document_id = h.document_id and r.ord = h.revived_ord
where h.generation = $1 and h.stage = $2 and h.event_id = any($3::uuid[]) and not h.is_reaction_done

-- name: revision_fields
-- Producer fields of all revisions of these documents.
select document_id, ord, accepted_id, fields from document_revisions where document_id = any($1::uuid[])

-- name: amendments
-- Amendments of these documents.
select document_id, ord, accepted_id, fields, by_revision, limited_to from document_amendments where document_id = any($1::uuid[])

-- name: add_amendment
-- Store an amendment, or the fields of a late revision that has no row of its own.
insert into document_amendments (document_id, ord, accepted_id, tenant, fields, by_revision, received_at, log_topic, log_partition, log_offset, limited_to)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
-- A revision with a row of its own states its fields there.
where not exists (select from document_revisions r where r.document_id = $1 and r.ord = $2 and $6)
on conflict do nothing

-- name: amend_document
-- Store the effective amendable fields of a document. The last readers of a withdrawn one still protect its id.
update documents set
  title = $2, collection = $3, tags = $4, metadata = $5, amended = $6,
  readers = case when withdrawn >= latest and not 'readers' = any ($6::text[]) then readers else $7 end
where id = $1

-- name: delete_withdrawn_amendments
-- Delete amendments that precede a withdrawal.
delete from document_amendments a using unnest($1::uuid[], $2::text[]) k (document_id, ord) where a.document_id = k.document_id and a.ord < k.ord::bigint[]

-- name: unchanged_revisions
-- The subset of these revisions whose content is already visible in the live generation.
select s.document_id, s.ord
from unnest($1::uuid[], $2::text[]) k (document_id, ord)
join revision_states s on s.document_id = k.document_id and s.ord = k.ord::bigint[]
where s.unchanged

-- name: newly_visible_revisions
-- Revisions visible in generation $1 that were never visible in $2, the previous live one.
-- Empty if $2 is dropped, since its visible revisions are unknown then.
select v.tenant, v.document_id, d.external_id, r.event_id, r.source, r.accepted_id, v.chunks as n_chunks
from visible v
join documents d on d.id = v.document_id
join document_revisions r on r.document_id = v.document_id and r.ord = v.ord
left join visible b on b.generation = $2 and b.document_id = v.document_id
where v.generation = $1 and (b.ord is null or b.ord < v.ord) and (d.withdrawn is null or d.withdrawn < v.ord)
  and exists (select from generations where name = $2 and state <> 'dropped')
order by v.document_id

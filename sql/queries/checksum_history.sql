-- Row counts and hashes that only the same log reproduces: revisions, tombstones, superseded texts.
with lines as (
  select 'document_revisions' as name, row(document_id, revision, tenant, title, filename, media_type, content_sha256, fields, forced)::text as line
  from document_revisions
  union all
  select 'tombstones', row(id, tenant, external_id)::text from documents where withdrawn is not null
  union all
  select 'chunk_history', row(document_id, text_sha256, tenant)::text from chunk_history where generation is null
)
select name, count(*) as rows, sum(('x' || left(md5(line), 16))::bit(64)::bigint)::text as total from lines group by name

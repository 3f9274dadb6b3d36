-- name: open_jobs
-- Store jobs, or mark claimed ones as published; an existing one stays.
insert into jobs (id, tenant, document_id, event_id, source, external_id, requested_by)
select * from unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[]) j (id, tenant, document_id, event_id, source, external_id, requested_by)
-- Ordered, so that two statements with the same jobs cannot deadlock.
order by id
on conflict (id) do update set is_published = true where not jobs.is_published

-- name: claim_job
-- Store a job before its event is written; returns the hash of the request that has claimed it first.
insert into jobs (id, tenant, document_id, event_id, source, external_id, requested_by, request_sha256, readers, is_published)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, false)
-- An update even without a change: `do nothing` would return no row for an existing job.
on conflict (id) do update set request_sha256 = jobs.request_sha256
returning request_sha256

-- name: has_sent
-- Whether caller $3 has a job of document $2.
select exists (select from jobs where tenant = $1 and document_id = $2 and requested_by = $3)

-- name: document_access
-- Whether document $2 is admitted, whether the readers $3 may read its latest revision, whether caller $4 has sent
-- it, whether any caller has, and the jobs that are about to restrict it to other readers.
select
  coalesce(d.latest is not null, false) as is_admitted, d.latest is null or may_read($3::text[], d.readers) as is_readable,
  exists (select from jobs j where j.tenant = $1 and j.document_id = $2 and j.requested_by = $4 and j.is_published) as is_own,
  exists (select from jobs j where j.tenant = $1 and j.document_id = $2 and j.is_published)
    or exists (select from dead_letters l where l.tenant = $1 and l.document_id = $2 and l.stage = 'receive' and l.closed_at is null) as is_known,
  array(
    select j.id from jobs j
    where j.tenant = $1 and j.document_id = $2 and not may_read($3, j.readers)
      -- The append of an unpublished job has failed, unless it is recent.
      and (j.is_published or j.created_at > now() - interval '10 minutes')
      and not exists (select from document_revisions r where r.document_id = $2 and r.accepted_id = j.id)
      and not exists (select from document_amendments a where a.accepted_id = j.id)
      and not exists (select from dead_letters l where l.event_id = j.id)
  ) as restricting_jobs
from (select 1) one
left join documents d on d.id = $2 and d.tenant = $1

-- name: count_projected
-- How many of these accepted events stage `transcribe` has projected, with or without an effect.
select count(distinct i.event_id) from generations g join inbox i on i.generation = g.name and i.stage = 'transcribe' and i.event_id = any ($1::uuid[])

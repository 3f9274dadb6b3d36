-- name: documents
-- Documents with the state of their latest revision, in a `PageOrder` after the row of $7 and $8.
-- Withdrawn ones only by state or id ($2). Includes documents that failed at ingress, if their id is known; $10 is
-- the id derived from external id $3. $11 reader names, $12 caller id: a caller with limited access sees only its
-- own ingress events. $13 part of title or file name, $14 and $15 first and last day. $16 whole external id, title or
-- file name, or an id from $17 to $18.
select x.*, {sort_key} as sort_value from (
  select
    d.id as document_id, d.external_id, nullif(d.source, '') as source, d.source_uri, d.filename, coalesce(d.media_type, t.media_type) as media_type,
    coalesce(d.title, t.title, d.filename) as title, coalesce(d.language, t.language) as language, d.collection, d.tags, d.metadata,
    coalesce(d.document_date, t.document_date) as document_date,
    d.content_sha256, d.blob, d.revision, d.received_at, s.accepted_id as ingestion_job_id,
    shown.revision as visible_revision, s.state, s.generation, coalesce(s.chunks, 0) as chunks_count, t.characters, t.pages,
    coalesce(t.warnings, '[]') as warnings,
    case when s.state = 'failed' then (
      select jsonb_build_object('code', b.code, 'detail', b.detail, 'remedy', b.remedy)
      from revision_dead_letters b where b.document_id = d.id and b.ord = s.ord and b.generation in ('', s.generation) order by b.dead_lettered_at desc limit 1
      ) end as error, d.readers
  from documents d
  join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
  left join document_revisions shown on shown.document_id = d.id and shown.ord = s.visible
  left join revision_texts t on t.generation = s.generation and t.document_id = d.id and t.ord = coalesce(s.visible, s.ord)
  where d.tenant = $1
    and may_read($11::text[], d.readers) and ($11::text[] is null or 'readers' = any (d.amended) or may_read($11, shown.readers))
    and ($2::uuid is null or d.id = $2)
    and ($3::text is null or d.external_id = $3)
    and ($4::text is null or d.collection = $4)
    and ($5::text is null or d.tags @> array[$5])
    and case when $6::text is not null then s.state = $6 else $2 is not null or s.state <> 'withdrawn' end
  union all
  select
    f.document_id, coalesce(f.external_id, $3), f.source, f.document_summary ->> 'source_uri', f.document_summary ->> 'filename', f.document_summary ->> 'media_type',
    coalesce(f.document_summary ->> 'title', f.document_summary ->> 'filename'), null, f.document_summary ->> 'collection',
    coalesce((select array_agg(t.tag) from jsonb_array_elements_text(f.document_summary -> 'tags') t (tag)), '{}'), '{}', null,
    null, null, 0, f.dead_lettered_at, f.event_id,
    null, 'failed', null, 0, null, null,
    '[]', jsonb_build_object('code', f.code, 'detail', f.detail, 'remedy', f.remedy), null
  from ingress_failures f
  where f.tenant = $1 and ($11::text[] is null or exists (select from jobs j where j.id = f.event_id and j.requested_by = $12::text))
    and ($2::uuid is null or f.document_id = $2)
    and ($3::text is null or f.external_id = $3 or f.document_id = $10::uuid)
    and ($4::text is null or f.document_summary ->> 'collection' = $4) and ($5::text is null or f.document_summary -> 'tags' ? $5) and coalesce($6, 'failed') = 'failed'
) x
where ($7::{sort_type} is null or ({sort_key}, document_id) {beyond} ($7, $8::uuid))
  and ($13::text is null or strpos(lower(concat_ws(chr(10), title, filename)), lower($13)) > 0)
  and ($14::date is null or coalesce(document_date, (received_at at time zone 'UTC')::date) >= $14)
  and ($15::date is null or coalesce(document_date, (received_at at time zone 'UTC')::date) <= $15)
  and ($16::text is null or $16 in (external_id, title, filename) or document_id between $17::uuid and $18::uuid)
order by {sort_key} {direction}, document_id {direction}
limit $9

-- name: document_counts
-- Number of a tenant's documents per state of the latest revision, including failures at ingress. Nearly all are
-- visible at their latest revision, which a join of two tables shows; only the others need the view of states.
with documents_in_view as not materialized (
  select d.id, coalesce(v.ord = d.latest and (d.withdrawn is null or d.withdrawn < d.latest), false) as is_current
  from documents d
  left join visible v on v.document_id = d.id and v.generation = (select name from live_generation)
  where $1::text is null or d.tenant = $1
)
select state, sum(documents)::int as documents
from (
  select 'searchable' as state, count(*) as documents from documents_in_view where is_current
  union all
  select s.state, 1
  from documents_in_view d
  join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
  where not d.is_current
  union all
  select 'failed', 1 from ingress_failures f where ($1::text is null or f.tenant = $1)
) every
group by state
having sum(documents) > 0

-- name: document_status
-- Revisions with all inputs of their status: by accepted event ($2), or the latest of documents $3.
select
  s.document_id, s.ord, s.revision, s.accepted_id, s.unchanged, s.state, s.generation, s.visible, s.chunks,
  d.external_id, r.content_sha256, r.received_at, r.log_topic, r.log_partition, r.log_offset,
  h.log_topic as door_topic, h.log_partition as door_partition, h.log_offset as door_offset,
  t.warnings, t.log_topic as text_topic, t.log_partition as text_partition, t.log_offset as text_offset,
  (
    select coalesce(jsonb_agg(to_jsonb(x)), '[]') from (
      select kind, count(*) as have, max(parts) as parts, min(log_topic) as topic, min(log_partition) as partition, min(log_offset) as "offset"
      from revision_parts where generation = s.generation and document_id = s.document_id and ord = s.ord group by kind
    ) x
  ) as parts,
  (
    select coalesce(jsonb_agg(to_jsonb(x) order by x.stage, x.part), '[]') from (
      select stage, part, state, attempts, log_topic as topic, log_partition as partition, log_offset as "offset", started_at, duration_ms, error, pages_done, pages_total
      from job_stages where generation in ('', s.generation) and document_id = s.document_id and ord = s.ord
    ) x
  ) as jobs,
  (
    select coalesce(jsonb_agg(to_jsonb(x) order by x.dead_lettered_at), '[]') from (
      select stage, attempts, log_topic as topic, log_partition as partition, log_offset as "offset", code, detail, remedy, dead_lettered_at
      from revision_dead_letters where generation in ('', s.generation) and document_id = s.document_id and ord = s.ord
    ) x
  ) as dead_letters,
  (select coalesce(sum(tokens), 0)::int from child_chunks where generation = s.generation and document_id = s.document_id and ord = coalesce(s.visible, s.ord)) as tokens
from revision_states s
join documents d on d.id = s.document_id
join document_revisions r on r.document_id = s.document_id and r.ord = s.ord
left join inbox h on h.generation = '' and h.stage = 'receive' and h.event_id = s.accepted_id
left join revision_texts t on t.generation = s.generation and t.document_id = s.document_id and t.ord = s.ord
where s.tenant = $1 and may_read($4::text[], d.readers) and ($2::uuid is null or s.accepted_id = $2) and ($3::uuid[] is null or (s.document_id = any ($3) and s.ord = (select max(ord) from document_revisions x where x.document_id = s.document_id)))

-- name: ingress_status
-- Status of an event without a revision: its job, claims, dead letter, and whether a later event won.
-- $2 internal id, $3 and $4 the producer's id and source, $5 the id of the accepted event. Of erased events only
-- the id is known. An event without a job belongs to the tenant if its document does, or if it was addressed by
-- the producer's id, from which its internal id is derived. A caller with limited access ($6, $7) sees its own
-- events and those of documents it may read.
select
  coalesce(j.document_id, l.document_id) as document_id, coalesce(j.external_id, case when may_read($6::text[], d.readers) then d.external_id end, l.document_summary ->> 'external_id') as external_id,
  (j.id is not null or h.event_id is not null and (d.id is not null or $3 is not null))
    and ($6::text[] is null or j.requested_by = $7::text or (d.latest is not null and may_read($6, d.readers))) as is_known, h.log_topic, h.log_partition, h.log_offset, coalesce(h.is_reaction_done, false) as is_admitted, j.created_at,
  coalesce(d.accepted_id = $2 and d.withdrawn = d.latest, false) as withdraws,
  exists (select from document_amendments a where a.accepted_id = $2 and not a.by_revision) and coalesce(behind.claim <> 'superseded', true) as amends,
  coalesce(behind.claim = 'superseded' or later.log_offset > h.log_offset, false) as is_superseded,
  case when l.event_id is not null and ($6::text[] is null or j.requested_by = $7) then jsonb_build_object(
    'stage', l.stage, 'attempts', l.attempts, 'topic', l.log_topic, 'partition', l.log_partition, 'offset', l.log_offset,
    'code', l.code, 'detail', l.detail, 'remedy', l.remedy
  ) end as dead_letter
-- One row to join to: none of the tables need know the event.
from (select 1) one
left join jobs j on j.id = $2 and j.tenant = $1 and j.is_published
left join inbox h on h.generation = '' and h.stage = 'receive' and h.event_id = $2 and h.payload_sha256 is distinct from 'erased'
left join lateral (
  select * from dead_letters
  where coalesce(tenant, 'default') = $1 and (event_id = $2 or (producer_source = $4 and producer_event_id = $3))
    -- Open, or closed without success; a redriven one is history.
    and coalesce(resolution, 'discarded') = 'discarded'
  order by dead_lettered_at desc limit 1
) l on true
left join lateral (
  select claim, document_id from generations g join inbox on generation = g.name and stage = 'transcribe' and event_id = $5 limit 1
) behind on true
left join documents d on d.id = coalesce(j.document_id, behind.document_id) and d.tenant = $1
left join inbox later on later.generation = '' and later.stage = 'receive' and later.event_id = d.accepted_id and later.log_partition = h.log_partition
limit 1

-- name: latest_event
-- Latest known event of a document: its latest job, or its latest dead letter at ingress. A job is no reason to
-- show its sender a document that he may no longer read.
select event_id
from (
  select id as event_id, created_at as known_at from jobs
  where tenant = $1 and document_id = $2 and is_published and ($3::text[] is null or requested_by = $4::text)
    and not exists (select from documents d where d.id = $2 and d.tenant = $1 and d.latest is not null and not may_read($3, d.readers))
  union all
  select event_id, dead_lettered_at from dead_letters where tenant = $1 and document_id = $2 and stage = 'receive' and closed_at is null and $3::text[] is null
) every
order by known_at desc
limit 1

-- name: document_events
-- Stage events of a document, for each revision and generation, in chronological order.
with revisions as (
  select r.document_id, r.ord, r.revision, r.received_at, r.log_topic, r.log_partition, r.log_offset from document_revisions r join documents d on d.id = r.document_id where r.tenant = $1 and r.document_id = $2 and may_read($5::text[], d.readers)
), lines as (
  select r.revision, j.generation, j.stage, j.part, j.state, j.attempts, j.log_topic, j.log_partition, j.log_offset, j.started_at, j.duration_ms, j.error
  from revisions r join job_stages j on j.document_id = r.document_id and j.ord = r.ord
  union all
  select r.revision, '', 'receive', 1, 'done', 1, h.log_topic, h.log_partition, h.log_offset, r.received_at, null, null
  from revisions r join document_revisions d on d.document_id = r.document_id and d.ord = r.ord
  join inbox h on h.generation = '' and h.stage = 'receive' and h.event_id = d.accepted_id
  union all
  select b.revision, b.generation, b.stage, 1, 'failed', b.attempts, b.log_topic, b.log_partition, b.log_offset, b.dead_lettered_at, null,
         jsonb_build_object('code', b.code, 'detail', b.detail, 'remedy', b.remedy)
  from (
    select l.*, r.revision from dead_letters l left join revision_dead_letters x on x.event_id = l.event_id and x.stage = l.stage and x.generation = l.generation
    left join revisions r on r.ord = x.ord where l.document_id = $2 and coalesce(l.tenant, 'default') = $1 and ($5::text[] is null or exists (select from revisions))
  ) b
  where not exists (
    select from revisions r join job_stages j on j.document_id = r.document_id and j.ord = r.ord
    where j.stage = b.stage and j.log_topic = b.log_topic and j.log_partition = b.log_partition and j.log_offset = b.log_offset and j.error is not null
  )
)
select revision, nullif(generation, '') as generation, stage, part, state, attempts, log_topic as topic, log_partition as partition, log_offset as "offset",
       started_at, duration_ms, error
from lines order by started_at, revision, generation, stage, part
offset $3 limit $4

-- name: have_contents
-- Whether any revision of each document has these bytes, in the order of the parameters.
select exists (
  select from document_revisions r where r.document_id = c.document_id and r.tenant = c.tenant and r.content_sha256 = c.content_sha256
) as is_present
from unnest($1::text[], $2::uuid[], $3::text[]) with ordinality c (tenant, document_id, content_sha256, n)
order by c.n

-- name: document_text
-- Markdown of the visible revision, or of the latest one with a text while none is visible; of revision $4 if given.
select t.document_id, t.markdown, t.blob ->> 'key' as blob_key
from live_generation g
join revision_texts t on t.generation = g.name and t.document_id = $2 and t.tenant = $1
join documents d on d.id = t.document_id
left join visible v on v.generation = g.name and v.document_id = t.document_id
where (d.withdrawn is null or d.withdrawn < t.ord) and ($3::text[] is null or may_read(t.document_id, t.ord, $3))
  and ($4::int is null or exists (select from document_revisions r where r.document_id = t.document_id and r.ord = t.ord and r.revision = $4))
order by t.ord = v.ord desc nulls last, t.ord desc
limit 1

-- name: document_chunks
-- Visible chunks of a document in text order, after an ordinal.
select c.id as chunk_id, c.parent_id, c.ordinal, c.kind, c.text, p.section, p.pages, c.spans, c.char_start, c.char_end, c.tokens, c.language
from live_generation g
join visible v on v.generation = g.name and v.document_id = $2 and v.tenant = $1
join child_chunks c on c.generation = g.name and c.document_id = $2 and c.ord = v.ord
left join parent_chunks p on p.generation = g.name and p.document_id = $2 and p.ord = v.ord and p.id = c.parent_id
where c.ordinal > $3 and ($5::text[] is null or may_read($2, v.ord, $5))
order by c.ordinal, c.id
limit $4

-- name: document_entities
-- Entities that the visible revision of document $2 mentions, the most frequent first, each with its first $7 mentions.
select m.entity_id as id, min(coalesce(m.entity_type, m.type)) as type, mode() within group (order by m.name collate "C") as name, count(*)::int as mentions,
       (array_agg(jsonb_build_object('chunk_id', m.chunk_id, 'name', m.name, 'char_start', m.char_start, 'char_end', m.char_end) order by m.char_start, m.id))[:$7] as occurrences
from live_generation g
join visible v on v.generation = g.name and v.document_id = $2 and v.tenant = $1
join entity_mentions m on m.generation = g.name and m.document_id = $2 and m.ord = v.ord
where $3::text[] is null or may_read($2, v.ord, $3)
group by m.entity_id
having $4::bigint is null or (-count(*), m.entity_id) > (-$4::bigint, $5::uuid)
order by mentions desc, m.entity_id
limit $6

-- name: visible_documents
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

-- name: readable_documents
-- The subset of documents $2 that reader names $3 may read.
select id from documents where tenant = $1 and id = any ($2::uuid[]) and latest is not null and may_read($3::text[], readers)

-- name: missing_collections
-- Names of $2 without a current document that readers $3 may read.
select name from unnest($2::text[]) name
where not exists (
  select from documents d
  where d.tenant = $1 and d.collection = name and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and may_read($3::text[], d.readers)
)

-- name: received_times
-- When the log received the events of these revisions.
select accepted_id, received_at from document_revisions where accepted_id = any($1::uuid[])

-- name: document_owners
-- The sources that own these documents.
select tenant, document_id, source from document_owners
where (tenant, document_id) in (select * from unnest($1::text[], $2::uuid[]))

-- name: admit_events
-- Note the events $3 about documents as the last ones admitted, and make sources $4 the owners where there are none, or
-- where the owner is one of those in $5; returns the owners. Without a source an event leaves the owner, and an event
-- that may not change it notes nothing.
with admission as (
  select tenant, document_id, event_id, source, allowed::jsonb as allowed, ord::bigint[] as latest, numbered
  from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bool[])
    a (tenant, document_id, event_id, source, allowed, ord, numbered)
), noted as (
  insert into document_owners as o (tenant, document_id, source, admitted_id, latest, numbered)
  -- Ordered, so that two workers that admit events about the same documents cannot deadlock.
  select tenant, document_id, source, event_id, latest, numbered from admission order by tenant, document_id
  on conflict (tenant, document_id) do update set
    source = coalesce(excluded.source, o.source),
    admitted_id = excluded.admitted_id,
    previous_id = case when o.admitted_id = excluded.admitted_id then o.previous_id else o.admitted_id end,
    latest = greatest(o.latest, excluded.latest),
    numbered = case when o.latest > excluded.latest then o.numbered else excluded.numbered end
  where o.source is null or excluded.source is null
    or (select a.allowed ?| array[o.source, '*'] from admission a where a.tenant = o.tenant and a.document_id = o.document_id)
  returning tenant, document_id, source
)
select tenant, document_id, source from noted
-- The owners that the statement left, as they were when it began.
union all
select o.tenant, o.document_id, o.source from document_owners o join admission a using (tenant, document_id)
where not exists (select from noted n where n.tenant = o.tenant and n.document_id = o.document_id)

-- name: restore_owners
-- Restore document owners from the log: the last accepted revision decides.
insert into document_owners (document_id, tenant, source) select * from unnest($1::uuid[], $2::text[], $3::text[])
on conflict (tenant, document_id) do update set source = excluded.source

-- name: collection_documents
-- Documents of a collection.
select id from documents where tenant = $1 and collection = $2

-- Processing of events: inbox, jobs, dead letters, replays, and the state of each revision.
set local search_path = anabranch, extensions, public;

-- Events that each stage has processed, which makes a redelivered event a no-op. Operational, not a projection.
-- `revived_ord`: the revision that a late withdrawal revived, while its reaction is pending. `open_attempts`: attempts at the
-- reaction that have not ended; a worker that is killed in the middle leaves its attempt open.
create table inbox (
  generation text not null,
  stage text not null,
  event_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  claim text not null,
  payload_sha256 text,
  visibility_change jsonb,
  is_unchanged bool not null default false,
  is_reaction_done bool not null default false,
  revived_ord bigint[],
  open_attempts int not null default 0,
  document_id uuid,
  ord bigint[],
  part int,
  primary key (generation, stage, event_id)
) with (fillfactor = 80);
create index inbox_by_offset on inbox (stage, log_topic, log_partition, log_offset);

-- Results of engines by hash of their input. Operational.
create table engine_results (
  tenant text not null,
  document_id uuid not null,
  engine text not null,
  input_sha256 bytea not null,
  result bytea not null,
  primary key (document_id, engine, input_sha256, tenant)
);
alter table engine_results alter column result set storage external;

-- Uploads. Operational.
create table jobs (
  id uuid primary key,
  tenant text not null,
  document_id uuid not null,
  event_id text not null,
  source text not null,
  external_id text,
  requested_by text,
  created_at timestamptz not null default clock_timestamp()
);
create index jobs_by_event on jobs (tenant, source, event_id);
create index jobs_by_document on jobs (document_id);

-- Progress of each stage on each revision. Operational.
create table job_stages (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  stage text not null,
  part int not null,
  state text not null,
  attempts int not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  started_at timestamptz not null,
  duration_ms real,
  error jsonb,
  primary key (generation, document_id, ord, stage, part)
) with (fillfactor = 80);

-- Events that could not be processed, and why. `document_summary`: document fields of the event, which are stored nowhere else
-- if it failed at ingress.
create table dead_letters (
  event_id uuid not null,
  stage text not null,
  generation text not null default '',
  original_type text,
  tenant text,
  document_id uuid,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  headers jsonb,
  appended_at timestamptz,
  code text not null,
  detail text not null,
  remedy text not null,
  traceback text,
  attempts int not null,
  record jsonb,
  document_summary jsonb,
  producer_event_id text,
  producer_source text,
  dead_lettered_at timestamptz not null,
  closed_at timestamptz,
  resolution text,
  closed_reason text,
  primary key (event_id, stage, generation)
);
create index dead_letters_by_document on dead_letters (document_id);
create index dead_letters_by_producer on dead_letters (producer_source, producer_event_id);
create index dead_letters_by_time on dead_letters (dead_lettered_at desc, event_id);
create index dead_letters_at_ingress on dead_letters (document_id, dead_lettered_at) where stage = 'receive';

-- Operational: what is replayed, and how far. `dead_letter_ids` are dead letters; otherwise a range from `start_offsets` to
-- `end_offsets`. The rate is computed since `resumed_at`, so that pauses do not count.
create table replays (
  id uuid primary key,
  tenant text not null,
  kind text not null check (kind in ('replay', 'redrive')),
  stage text not null,
  generation text,
  selection jsonb not null,
  state text not null default 'running' check (state in ('running', 'paused', 'done', 'cancelled', 'failed')),
  per_second real,
  dead_letter_ids uuid[],
  topic text,
  start_offsets jsonb,
  end_offsets jsonb,
  positions jsonb not null default '{}',
  total bigint not null,
  read bigint not null default 0,
  read_at_resume bigint not null default 0,
  replayed bigint not null default 0,
  superseded bigint not null default 0,
  dead_lettered bigint not null default 0,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  resumed_at timestamptz,
  ended_at timestamptz,
  lease_owner uuid,
  lease_until timestamptz
);
create index replays_by_time on replays (tenant, created_at desc);
create index replays_open on replays (stage) where state = 'running';

-- The last failure of each document of which no event was admitted: only a dead letter, and the job of an upload,
-- refer to it.
create view ingress_failures as
select distinct on (f.document_id) f.*
from (
  select coalesce(l.document_id, j.document_id) as document_id, coalesce(l.tenant, j.tenant) as tenant, coalesce(l.document_summary ->> 'external_id', j.external_id) as external_id,
    l.producer_source as source, l.event_id, l.code, l.detail, l.remedy, l.dead_lettered_at, l.document_summary
  from dead_letters l
  left join jobs j on j.id = l.event_id
  where l.stage = 'receive' and coalesce(l.original_type, '') not like 'document.withdrawn.%' and coalesce(l.original_type, '') not like 'document.amended.%' and l.closed_at is null
) f
where f.document_id is not null and not exists (select from documents d where d.id = f.document_id and d.latest is not null)
order by f.document_id, f.dead_lettered_at desc;

-- Log positions of the events from which a revision's stages worked.
create view revision_positions as
select document_id, ord, ''::text as generation, 'transcribe' as stage, log_topic, log_partition, log_offset from document_revisions
union all
select document_id, ord, generation, 'chunk', log_topic, log_partition, log_offset from revision_texts
union all
select document_id, ord, generation, stage, log_topic, log_partition, log_offset
from revision_parts join (values ('chunks', 'embed'), ('chunks', 'extract'), ('vectors', 'index'), ('entities', 'graph')) reader (kind, stage) using (kind);

-- Dead letters by revision. One whose position matches no revision (its rows were never written) belongs to the
-- last revision received by then; a later one is another attempt. A discarded event has failed for good: without
-- its dead letter the revision would appear to be in progress forever.
create view revision_dead_letters as
select l.event_id, l.stage, l.generation, l.original_type, l.tenant, l.document_id, l.log_topic, l.log_partition, l.log_offset, l.code, l.detail, l.remedy,
  l.traceback, l.attempts, l.record, l.producer_event_id, l.producer_source, l.dead_lettered_at,
  coalesce(
    p.ord,
    (select max(ord) from document_revisions where document_id = l.document_id and received_at <= l.dead_lettered_at),
    (select min(ord) from document_revisions where document_id = l.document_id)
  ) as ord
from dead_letters l
left join lateral (
  select ord from revision_positions
  where document_id = l.document_id and stage = l.stage and log_topic = l.log_topic and log_partition = l.log_partition and log_offset = l.log_offset
    and (generation = '' or generation = l.generation)
  limit 1
) p on true
where l.document_id is not null and l.stage <> 'receive' and (l.closed_at is null or l.resolution = 'discarded');

-- The state of each revision in the live generation. `searchable` by words and vectors; entities may follow. A
-- revision with the same content as the visible one is served by it.
create view revision_states as
select
  r.document_id, r.ord, r.revision, r.tenant, r.accepted_id, same.unchanged, g.name as generation, v.ord as visible, v.chunks,
  case
    when d.withdrawn >= r.ord then 'withdrawn'
    when v.ord = r.ord then 'searchable'
    when exists (
      select from revision_dead_letters b
      where b.document_id = r.document_id and b.ord = r.ord and b.stage in ('transcribe', 'chunk', 'embed', 'index') and b.generation in ('', g.name)
    ) then 'failed'
    when v.ord > r.ord then 'superseded'
    when same.unchanged then 'searchable'
    when d.latest > r.ord then 'superseded'
    else 'running'
  end as state
from document_revisions r
join documents d on d.id = r.document_id
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = r.document_id
left join document_revisions shown on shown.document_id = v.document_id and shown.ord = v.ord
-- Compared here rather than stored: whether a revision changed anything depends on what was visible.
cross join lateral (
  select coalesce(shown.ord < r.ord and not exists (
    select from document_revisions other
    where other.document_id = r.document_id and other.ord > shown.ord and other.ord <= r.ord
      and (other.forced or other.content_sha256 <> shown.content_sha256 or other.fields <> shown.fields)
  ), false) as unchanged
) same;

-- Closed dead letters, and replays.
set local search_path = anabranch, extensions, public;

alter table dead_letters
  add column headers jsonb,
  add column appended_at timestamptz,
  add column closed_at timestamptz,
  add column resolution text,
  add column closed_reason text;

-- Operational: what is replayed, and how far. `letters` are dead letters; otherwise a range from `starts` to
-- `ends`.
create table replays (
  id uuid primary key,
  tenant text not null,
  kind text not null check (kind in ('replay', 'redrive')),
  stage text not null,
  generation text,
  chosen jsonb not null,
  state text not null default 'running' check (state in ('running', 'paused', 'done', 'cancelled', 'failed')),
  per_second real,
  letters uuid[],
  topic text,
  starts jsonb,
  ends jsonb,
  places jsonb not null default '{}',
  total bigint not null,
  read bigint not null default 0,
  replayed bigint not null default 0,
  superseded bigint not null default 0,
  buried bigint not null default 0,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  ended_at timestamptz,
  lease_owner uuid,
  lease_until timestamptz
);
create index replays_by_time on replays (tenant, created_at desc);
create index replays_open on replays (stage) where state = 'running';

-- As before, without closed dead letters.
create or replace view revision_dead_letters as
select l.event_id, l.stage, l.generation, l.buried_type, l.tenant, l.document_id, l.log_topic, l.log_partition, l.log_offset, l.code, l.detail, l.remedy,
  l.traceback, l.attempts, l.record, l.producer_event_id, l.producer_source, l.dead_lettered_at,
  coalesce(p.ord, (select max(ord) from document_revisions where document_id = l.document_id)) as ord
from dead_letters l
left join lateral (
  select ord from revision_positions
  where document_id = l.document_id and stage = l.stage and log_topic = l.log_topic and log_partition = l.log_partition and log_offset = l.log_offset
    and (generation = '' or generation = l.generation)
  limit 1
) p on true
where l.document_id is not null and l.stage <> 'receive' and l.closed_at is null;

create or replace view ingress_failures as
select distinct on (f.document_id) f.*
from (
  select coalesce(l.document_id, j.document_id) as document_id, coalesce(l.tenant, j.tenant) as tenant, j.external_id, l.producer_source as source,
    l.event_id, l.code, l.detail, l.remedy, l.dead_lettered_at
  from dead_letters l
  left join jobs j on j.id = l.event_id
  where l.stage = 'receive' and coalesce(l.buried_type, '') not like 'document.withdrawn.%' and l.closed_at is null
) f
where f.document_id is not null and not exists (select from documents d where d.id = f.document_id and d.latest is not null)
order by f.document_id, f.dead_lettered_at desc;

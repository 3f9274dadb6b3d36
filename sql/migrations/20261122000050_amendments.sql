-- Amendments of documents, each with its own order, and the fields of late revisions (`by_revision`).
set local search_path = anabranch, extensions, public;

create table document_amendments (
  document_id uuid not null,
  ord bigint[] not null,
  accepted_id uuid not null,
  tenant text not null,
  said jsonb not null,
  by_revision bool not null default false,
  received_at timestamptz not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (document_id, ord, accepted_id)
);
create index document_amendments_by_event on document_amendments (accepted_id);

-- Fields whose value comes from an amendment.
alter table documents add column amended text[] not null default '{}';

-- As before; a dead-lettered amendment does not create a document either.
create or replace view ingress_failures as
select distinct on (f.document_id) f.*
from (
  select coalesce(l.document_id, j.document_id) as document_id, coalesce(l.tenant, j.tenant) as tenant, j.external_id, l.producer_source as source,
    l.event_id, l.code, l.detail, l.remedy, l.dead_lettered_at
  from dead_letters l
  left join jobs j on j.id = l.event_id
  where l.stage = 'receive' and coalesce(l.buried_type, '') not like 'document.withdrawn.%' and coalesce(l.buried_type, '') not like 'document.amended.%' and l.closed_at is null
) f
where f.document_id is not null and not exists (select from documents d where d.id = f.document_id and d.latest is not null)
order by f.document_id, f.dead_lettered_at desc;

-- Documents that failed at ingress: only a dead letter, and the job of an upload, refer to them.
set local search_path = anabranch, extensions, public;

create index dead_letters_at_ingress on dead_letters (document_id, dead_lettered_at) where stage = 'receive';

-- As before, without failures at ingress: they belong to no revision.
create or replace view revision_dead_letters as
select l.*, coalesce(p.ord, (select max(ord) from document_revisions where document_id = l.document_id)) as ord
from dead_letters l
left join lateral (
  select ord from revision_positions
  where document_id = l.document_id and stage = l.stage and log_topic = l.log_topic and log_partition = l.log_partition and log_offset = l.log_offset
    and (generation = '' or generation = l.generation)
  limit 1
) p on true
where l.document_id is not null and l.stage <> 'receive';

-- The last failure of each document of which no event was admitted.
create view ingress_failures as
select distinct on (f.document_id) f.*
from (
  select coalesce(l.document_id, j.document_id) as document_id, coalesce(l.tenant, j.tenant) as tenant, j.external_id, l.producer_source as source,
    l.event_id, l.code, l.detail, l.remedy, l.dead_lettered_at
  from dead_letters l
  left join jobs j on j.id = l.event_id
  where l.stage = 'receive' and coalesce(l.buried_type, '') not like 'document.withdrawn.%'
) f
where f.document_id is not null and not exists (select from documents d where d.id = f.document_id and d.latest is not null)
order by f.document_id, f.dead_lettered_at desc;

-- Document fields of a dead-lettered event, which are stored nowhere else if it failed at ingress.
set local search_path = anabranch, extensions, public;

alter table dead_letters add column said jsonb;

-- As before, with these fields.
create or replace view ingress_failures as
select distinct on (f.document_id) f.*
from (
  select coalesce(l.document_id, j.document_id) as document_id, coalesce(l.tenant, j.tenant) as tenant, coalesce(l.said ->> 'external_id', j.external_id) as external_id,
    l.producer_source as source, l.event_id, l.code, l.detail, l.remedy, l.dead_lettered_at, l.said
  from dead_letters l
  left join jobs j on j.id = l.event_id
  where l.stage = 'receive' and coalesce(l.buried_type, '') not like 'document.withdrawn.%' and coalesce(l.buried_type, '') not like 'document.amended.%' and l.closed_at is null
) f
where f.document_id is not null and not exists (select from documents d where d.id = f.document_id and d.latest is not null)
order by f.document_id, f.dead_lettered_at desc;

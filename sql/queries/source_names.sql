-- Number of these documents that their sources still contain.
with named (source, external_id) as (
  select source, external_id from documents where id = any($1)
  union
  select source, fields ->> 'external_id' from document_revisions where document_id = any($1)
)
select count(distinct (s.name, n.external_id))
from named n join sources s on s.ce_source = n.source
where exists (select from source_rows r where r.source = s.name and r.external_id = n.external_id and r.live)
  or exists (select from source_notes o where o.source = s.name and o.key = 'item:' || n.external_id and (o.value ->> 'live')::bool)

-- Sources with the status of their readers.
select s.name, s.ce_source, s.spec, s.epoch, s.resets, s.removed, s.withdraw,
  (select count(*) from documents d where d.source = s.ce_source and d.tenant = s.spec ->> 'tenant' and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest)) as documents,
  (select count(*) from source_rows r where r.source = s.name and r.owed) as owed,
  (select count(distinct c.key) from source_changes c where c.source = s.name and not c.gone and not exists (
     select 1 from source_rows r where r.source = c.source and r.key = c.key)) as unsure,
  (select last_change_at from source_states t where t.source = s.name) as last_change_at,
  (select n.value from source_notes n where n.source = s.name and n.key = 'status') as status
from sources s order by s.name

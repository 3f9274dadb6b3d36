-- Columns that a source's reader keeps of a row.
delete from source_changes c
using documents d, source_rows r, sources s
where d.tenant = $1 and d.id = any($2) and s.ce_source = d.source and r.source = s.name and r.external_id = d.external_id
  and c.source = r.source and c.key = r.key

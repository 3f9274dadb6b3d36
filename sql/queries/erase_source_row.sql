-- The texts that a source's reader keeps of a document, under the keys that the row has or had.
delete from source_changes c using sources s, source_rows r
where s.ce_source = $1 and r.source = s.name and r.external_id = $2 and c.source = s.name
  and (c.key = r.key or c.key in (select o.old_key from source_changes o where o.source = s.name and o.key = r.key))

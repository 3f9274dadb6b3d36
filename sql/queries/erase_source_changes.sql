-- Columns that a source's reader keeps of a row, also from the time before the row got its key from another.
with recursive lives (source, key, epoch, sequence) as (
  select s.name, r.key, 2147483647, 9223372036854775807
  from documents d join sources s on s.ce_source = d.source join source_rows r on r.source = s.name and r.external_id = d.external_id
  where d.tenant = $1 and d.id = any($2)
  union
  select c.source, c.old_key, c.epoch, c.sequence
  from lives l join source_changes c on c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence) and c.old_key is not null
)
delete from source_changes c using lives l where c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence)

-- Delete stored columns of the documents' source rows, also under keys they had before.
with recursive named (source, external_id) as (
  select source, external_id from documents where tenant = $1 and id = any($2)
  union
  select source, fields ->> 'external_id' from document_revisions where tenant = $1 and document_id = any($2)
), lives (source, key, epoch, sequence) as (
  select s.name, r.key, 2147483647, 9223372036854775807
  from named n join sources s on s.ce_source = n.source join source_rows r on r.source = s.name and r.external_id = n.external_id
  union
  select c.source, c.old_key, c.epoch, c.sequence
  from lives l join source_changes c on c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence) and c.old_key is not null
)
delete from source_changes c using lives l where c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence)

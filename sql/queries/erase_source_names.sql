-- Delete the external ids of documents that their sources no longer contain.
with named (source, external_id) as (
  select source, external_id from documents where id = any($1)
  union
  select source, fields ->> 'external_id' from document_revisions where document_id = any($1)
), remembered as (
  select s.name, n.external_id from named n join sources s on s.ce_source = n.source
), rows as (
  delete from source_rows r using remembered m where r.source = m.name and r.external_id = m.external_id and not r.live returning 1
)
delete from source_notes n using remembered m where n.source = m.name and n.key = 'item:' || m.external_id and not coalesce((n.value ->> 'live')::bool, false)

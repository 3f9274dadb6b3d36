-- Delete all stored state of a source.
with a as (delete from source_changes where source = $1), b as (delete from source_rows where source = $1),
  c as (delete from source_tables where source = $1), d as (delete from source_progress where source = $1),
  e as (delete from source_notes where source = $1)
delete from source_states where source = $1

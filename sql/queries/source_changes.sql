-- Stored changes of these source rows.
select key, table_name, epoch, sequence, read, gone, columns, unknown, old_key from source_changes where source = $1 and key = any($2::text[])

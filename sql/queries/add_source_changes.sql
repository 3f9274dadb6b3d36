-- Store changes of source rows; existing ones stay.
insert into source_changes (source, key, epoch, sequence, read, table_name, gone, columns, unknown, old_key)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict do nothing

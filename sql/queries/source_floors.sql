-- Raise the floors of a source table; a floor never decreases.
insert into source_tables (source, table_name, truncated, read) values ($1, $2, coalesce($3::bigint[], '{0,0}'), coalesce($4::bigint[], '{0,0}'))
on conflict (source, table_name) do update
  set truncated = greatest(source_tables.truncated, excluded.truncated), read = greatest(source_tables.read, excluded.read)

-- Record the end of a full snapshot; rows it did not read are withdrawn once all read rows are applied.
insert into source_tables (source, table_name, ended, ended_topic, ended_ends, ended_at) values ($1, $2, $3, $4, $5, clock_timestamp())
on conflict (source, table_name) do update set ended = excluded.ended, ended_topic = excluded.ended_topic, ended_ends = excluded.ended_ends,
  ended_at = excluded.ended_at
where source_tables.ended is null or source_tables.ended < excluded.ended

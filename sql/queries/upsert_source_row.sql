-- Store the last published state of a source row.
insert into source_rows (source, key, table_name, epoch, sequence, step, digest, external_id, live, released_ids, owed)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (source, key) do update set table_name = excluded.table_name, epoch = excluded.epoch, sequence = excluded.sequence, step = excluded.step,
  digest = excluded.digest, external_id = excluded.external_id, live = excluded.live, released_ids = excluded.released_ids, owed = excluded.owed

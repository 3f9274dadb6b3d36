-- Store why a reader is stalled; `since` stays while the same reason is renewed within $7 seconds.
insert into reader_status as p (reader, topic, partition, code, detail, remedy) values ($1, $2, $3, $4, $5, $6)
on conflict (reader, topic, partition) do update set
  code = excluded.code, detail = excluded.detail, remedy = excluded.remedy, updated_at = excluded.updated_at,
  since = case when p.detail = excluded.detail and p.updated_at > excluded.updated_at - make_interval(secs => $7) then p.since else excluded.since end

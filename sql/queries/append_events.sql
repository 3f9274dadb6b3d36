-- Append records in order, notify readers of their topics, and return the positions in that order.
with appended as (
  insert into events (topic, key, headers, value)
  select r.topic, r.key, r.headers::jsonb, r.value
  from unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[]) with ordinality r (topic, key, headers, value, n)
  order by r.n
  returning position, topic
), told as materialized (
  select pg_notify('anabranch_events', string_agg(distinct topic, ',')) from appended
)
select array(select position from appended order by position) as positions, (select count(*) from told) as told

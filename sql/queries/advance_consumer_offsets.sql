-- Advance the offsets of a group; returns partitions whose stored offset is lower than expected.
-- $1 group, $2 topic, $3 partitions, $4 offsets, $5 expected offsets.
with told as (
  select * from unnest($3::int[], $4::bigint[], $5::bigint[]) t (partition, next_offset, expected)
), missed as (
  select t.partition, t.expected, coalesce(r.next_offset, 0) as known
  from told t left join consumer_offsets r on r.reader = $1 and r.topic = $2 and r.partition = t.partition
  where coalesce(r.next_offset, 0) < t.expected
), noted as (
  insert into consumer_offsets as r (reader, topic, partition, next_offset)
  select $1, $2, partition, next_offset from told where not exists (select from missed) order by partition
  on conflict (reader, topic, partition) do update set next_offset = excluded.next_offset where r.next_offset < excluded.next_offset
)
select partition, expected, known from missed order by partition

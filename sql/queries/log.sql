-- name: append_events
-- Append records in order, notify readers of their topics, and return the positions in that order.
-- $5 consumer groups, separated by commas, that have processed a record already, or null.
with appended as (
  insert into events (topic, key, headers, value, applied_by)
  select r.topic, r.key, r.headers::jsonb, r.value, string_to_array(r.applied_by, ',')
  from unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[], $5::text[]) with ordinality r (topic, key, headers, value, applied_by, n)
  -- The identity assigns positions in this order, which the caller relies on.
  order by r.n
  returning position, topic, applied_by
), unread as (
  select distinct topic from appended a
  -- Readers that need not read a record find it at their next poll.
  where applied_by is null or exists (select from log_readers r where r.topic = a.topic and r.reader <> all (a.applied_by))
), reported as materialized (
  -- Sent with the commit, one for all topics: a notification per record would flood the queue.
  select pg_notify('anabranch_events', string_agg(topic, ',')) from unread having count(*) > 0
)
select array(select position from appended order by position) as positions, (select count(*) from reported) as reported

-- name: read_events
-- Next records of group $6 in (transaction, position) order: at most $4, and about $5 bytes.
-- Records that the group has processed already come without payload. Only below the snapshot horizon: a running transaction may still insert records before those above it. The first
-- record above it is returned as unripe, without payload.
with following as (
  -- `before` excludes the row itself, so the first one is returned whatever its size.
  select e.xact, e.position, e.key, e.appended_at, a.applied,
         case when not a.applied then e.headers end as headers,
         case when not a.applied then e.value end as value,
         sum(case when a.applied then 0 else coalesce(octet_length(e.value), 0) end)
           over (order by e.xact, e.position rows between unbounded preceding and 1 preceding) as before
  from events e
  -- Tables that are younger than the event (an imported log, a recovery) do not have its effects.
  cross join lateral (select coalesce($6 = any (e.applied_by) and e.appended_at >= (select min(created_at) from generations), false) as applied) a
  where e.topic = $1 and (e.xact, e.position) > ($2::xid8, $3::bigint) and e.xact < pg_snapshot_xmin(pg_current_snapshot())
  order by e.xact, e.position
  limit $4
)
select xact, position, key, headers::text as headers, appended_at, value, applied, true as ripe
from following
where coalesce(before, 0) < $5
union all
(
  select xact, position, null, null, null, null, false, false
  from events
  where topic = $1 and (xact, position) > ($2::xid8, $3::bigint) and xact >= pg_snapshot_xmin(pg_current_snapshot())
  order by xact, position
  limit 1
)
order by xact, position

-- name: read_range
-- Records of a topic with positions in [$4, $5), after (transaction $2, position $3) in reading order.
select xact, position, key, headers::text as headers, appended_at, value
from (
  select e.*, sum(coalesce(octet_length(e.value), 0)) over (order by e.xact, e.position rows between unbounded preceding and 1 preceding) as before
  from events e
  where e.topic = $1 and (e.xact, e.position) > ($2::xid8, $3::bigint) and e.position >= $4 and e.position < $5
  order by e.xact, e.position
  limit $6
) following
where coalesce(before, 0) < $7
order by xact, position

-- name: feed_page
-- Records of topics $1 after (transaction $2, position $3) in reading order, below the snapshot horizon.
-- Payloads over $5 bytes are omitted. Every row, at least one, also has the number of records after the cursor
-- that expired in batches after $6, the last batch, and the horizon.
with page as (
  select topic, xact, position, key, headers::text as headers, appended_at, coalesce(octet_length(value), 0) as bytes,
         case when octet_length(value) <= $5 then value end as value
  from events
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, position
  limit $4
-- Ranges that expired unread: behind the cursor's position, in batches not yet reported.
), behind as (
  select records, (first_xact, first_position) > ($2::xid8, $3::bigint) as follows, first_batch > $6::bigint as untold
  from expired_ranges
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and batch > $6::bigint
), lost as (
  -- A range folded across the cursor, or with reported batches, has at least one unreported record.
  select coalesce(sum(case when follows and untold then records when follows or untold then 1 else 0 end), 0)::bigint as missed,
         coalesce(not bool_and(follows and untold), false) as at_least
  from behind
)
select page.*, lost.missed, lost.at_least, (select batch from expired_batches) as last_batch, pg_snapshot_xmin(pg_current_snapshot()) as horizon
-- A left join: an empty page still returns one row with the state of the log.
from lost left join page on true
order by page.xact, page.position

-- name: feed_lag
-- Number of records after a cursor, counted up to $4.
select count(*) from (
  select from events
  where topic = any ($1::text[]) and (xact, position) > ($2::xid8, $3::bigint) and xact < pg_snapshot_xmin(pg_current_snapshot())
  limit $4
) following

-- name: feed_head
-- Snapshot horizon of the log, and the last batch of expired records.
select pg_snapshot_xmin(pg_current_snapshot()) as horizon, batch as last_batch from expired_batches

-- name: acquire_lease
-- Acquire the reader lease of a group and topic for $4 seconds.
-- Succeeds if the lease is free, ours, expired, or its process is gone.
insert into log_readers as r (reader, topic, lease_owner, lease_until)
values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
on conflict (reader, topic) do update
set lease_owner = excluded.lease_owner, lease_until = excluded.lease_until
-- One statement: two processes that try at once cannot both see a free lease.
where r.lease_owner is null
   or r.lease_owner = excluded.lease_owner
   or r.lease_until < clock_timestamp()
   -- A killed process loses its LISTEN connection at once. A pooler may hide application names: then no process is
   -- seen, and leases end by time only.
   or (exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || excluded.lease_owner)
       and not exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || r.lease_owner))
returning xact, position

-- name: renew_lease
-- Store the cursor and renew the lease for $4 seconds; no row if another process has the lease.
update log_readers
set xact = $5::xid8, position = $6, lease_until = clock_timestamp() + make_interval(secs => $4)
where reader = $1 and topic = $2 and lease_owner = $3
returning position

-- name: release_lease
-- Release a reader lease and notify waiting processes.
with ended as (
  update log_readers set lease_owner = null, lease_until = null
  where reader = $1 and topic = $2 and lease_owner = $3
  returning topic
)
select pg_notify('anabranch_events', topic) from ended

-- name: reset_reader_cursor
-- Move group $1 in topic $2 before the first event whose reaction is pending, else to the end.
-- $3 generation, $4 stage, $5 whether the stage publishes anything.
with pending_events as (
  select e.xact, e.position
  from events e
  where e.topic = $2 and $5
    and not exists (
      select from inbox h where h.generation = $3 and h.stage = $4 and h.event_id::text = e.headers ->> 'ce_id' and (h.is_reaction_done or h.claim <> 'pending')
    )
  order by e.xact, e.position limit 1
), place as (
  select e.xact, e.position from events e
  -- The last record before the first pending one; without any pending one, the last of all.
  where e.topic = $2 and not exists (select from pending_events o where (e.xact, e.position) >= (o.xact, o.position))
  order by e.xact desc, e.position desc limit 1
)
insert into log_readers (reader, topic, xact, position)
select $1, $2, xact, position from place
on conflict (reader, topic) do update set xact = excluded.xact, position = excluded.position

-- name: advance_consumer_offsets
-- Advance the offsets of a group; returns partitions whose stored offset is lower than expected.
-- $1 group, $2 topic, $3 partitions, $4 offsets, $5 expected offsets.
with reported as (
  select * from unnest($3::int[], $4::bigint[], $5::bigint[]) t (partition, next_offset, expected)
), missed as (
  select t.partition, t.expected, coalesce(r.next_offset, 0) as stored
  from reported t left join consumer_offsets r on r.reader = $1 and r.topic = $2 and r.partition = t.partition
  -- A lower offset than this process wrote: the tables were restored from a backup.
  where coalesce(r.next_offset, 0) < t.expected
), noted as (
  insert into consumer_offsets as r (reader, topic, partition, next_offset)
  -- All or nothing: after a restore no offset may move.
  select $1, $2, partition, next_offset from reported where not exists (select from missed) order by partition
  -- Never lowered: partitions that were read again commit lower offsets for a while.
  on conflict (reader, topic, partition) do update set next_offset = excluded.next_offset where r.next_offset < excluded.next_offset
)
select partition, expected, stored from missed order by partition

-- name: oldest_unread_time
-- When the first record of topic $2 was appended that reader $1 has not finished.
select e.appended_at
from events e
where e.topic = $2 and not coalesce($1 = any (e.applied_by) and e.appended_at >= (select min(created_at) from generations), false) and (e.xact, e.position) > (select coalesce(max(xact), '0'::xid8), coalesce(max(position), 0) from log_readers where reader = $1 and topic = $2)
order by e.xact, e.position
limit 1

-- name: expire_events
-- Delete records past retention that all readers of the topic have finished: at most $1 per topic.
-- The limit keeps the transaction short. Unread records stay, and so does every record of a topic without readers,
-- unless it is among $2.
-- Positions do not ascend in reading order, so the lowest remaining position bounds `expired_below`.
with expired as (
  select t.topic, e.position
  from topics t
  cross join lateral (select xact, position, appended_at from events where topic = t.topic order by xact, position limit $1) e
  where t.retention_ms is not null and e.appended_at < clock_timestamp() - t.retention_ms * interval '1 millisecond'
    and (t.topic = any ($2::text[]) or exists (select from log_readers r where r.topic = t.topic))
    -- The slowest reader of the topic bounds what may be deleted.
    and not exists (select from log_readers r where r.topic = t.topic and (r.xact, r.position) < (e.xact, e.position))
), deleted as (
  delete from events where position in (select position from expired) returning topic, xact, position
), below as (
  select g.topic, max(g.position) + 1 as position,
    (select min(e.position) from events e where e.topic = g.topic and e.position not in (select position from expired)) as stays
  from deleted g group by g.topic
), cut as (
  update topics t set expired_below = greatest(t.expired_below, least(b.position, b.stays)) from below b where b.topic = t.topic
), {record_expired_ranges}
select count(*) from deleted

-- name: delete_events
-- Delete at most $2 records of topics $1 and return how many.
with deleted as (
  delete from events where position in (select position from events where topic = any ($1::text[]) limit $2) returning 1
)
select count(*) from deleted

-- name: record_expired_ranges
-- Included CTEs: record the records of `deleted` as one batch, for readers that missed them.
counted as (
  update expired_batches set batch = batch + 1 returning batch
), noted as (
  insert into expired_ranges (topic, first_xact, first_position, xact, position, first_batch, batch, records)
  select topic, xact, position, xact, position, batch, batch, 1 from deleted, counted
)

-- name: fold_expired_ranges
-- Fold expired ranges of topics with more than 2 * $1: of all but the latest $1, each $2 into one.
with numbered as (
  select id, row_number() over (partition by topic order by xact desc, position desc) as number, count(*) over (partition by topic) as rows from expired_ranges
), taken as (
  delete from expired_ranges g using numbered n
  -- Twice the limit before folding, so that it happens rarely and in bulk.
  where g.id = n.id and n.rows > 2 * $1::bigint and n.number > $1
  returning g.*, (n.number - $1 - 1) / $2::bigint as fold
)
insert into expired_ranges (topic, first_xact, first_position, xact, position, first_batch, batch, records)
select topic, (array_agg(first_xact order by first_xact, first_position))[1], (array_agg(first_position order by first_xact, first_position))[1],
       (array_agg(xact order by xact desc, position desc))[1], (array_agg(position order by xact desc, position desc))[1],
       min(first_batch), max(batch), sum(records)
from taken group by topic, fold

-- name: has_foreign_xacts
-- Whether records have transaction ids of another server, which this one has not reached.
select exists (
  -- The last record of each topic suffices, through the index, instead of a scan of the log.
  select from topics t cross join lateral (select xact from events where topic = t.topic order by xact desc, position desc limit 1) last
  where last.xact >= pg_snapshot_xmax(pg_current_snapshot())
)

-- name: rebase_reader_cursors
-- Move reader cursors of an imported log before the first unfinished record by position.
-- Records finished behind it are delivered again. Unfinished are also records appended here since the import,
-- whose transaction ids are lower.
update log_readers r
set xact = $1::xid8, position = coalesce(
  (
    -- The lowest unfinished position: in the new order everything behind it is unread.
    select min(e.position) - 1 from events e
    where e.topic = r.topic
      and ((e.xact, e.position) > (r.xact, r.position) or e.position > (select max(position) from events where xact >= pg_snapshot_xmax(pg_current_snapshot())))
  ),
  (select max(e.position) from events e where e.topic = r.topic),
  r.position
)
-- A cursor that never moved reads from the beginning anyway.
where r.xact > '0'

-- name: snapshot_horizon
-- Lowest transaction id that is still running.
select pg_snapshot_xmin(pg_current_snapshot())

-- name: create_topic
-- Store a topic; an existing one stays.
insert into topics (topic, partitions, retention_ms) values ($1, $2, $3) on conflict do nothing

-- name: topic_partitions
-- Partition counts of these topics.
select topic, partitions from topics where topic = any($1::text[])

-- name: delete_topic_rows
-- Delete the rows of `{table}` about these topics.
delete from {table} where topic = any($1::text[])

-- name: topics
-- All topics, including those that only records name.
select topic from topics union select topic from events order by topic

-- name: offset_bounds
-- Lowest position of a topic, and the one after its highest.
select coalesce(min(position), 0), coalesce(max(position) + 1, 0) from events where topic = $1

-- name: read_at
-- The record of a topic at a position.
select position, key, headers::text as headers, appended_at, value
from events
where position = $1 and topic = $2

-- name: topic_retention
-- Retention of a topic; null if unlimited.
select retention_ms * interval '1 millisecond' from topics where topic = $1

-- name: expired_below
-- Position below which records of a topic have expired.
select expired_below from topics where topic = $1

-- name: committed_position
-- Position of the last record that a reader has finished.
select position from log_readers where reader = $1 and topic = $2 and xact > '0'::xid8

-- name: count_unread
-- Number of records of topic $2 that reader $1 has not finished, below position $3 if given.
select count(*)
from events e
where e.topic = $2 and ($3::bigint is null or e.position < $3) and not coalesce($1 = any (e.applied_by) and e.appended_at >= (select min(created_at) from generations), false) and (e.xact, e.position) > (select coalesce(max(xact), '0'::xid8), coalesce(max(position), 0) from log_readers where reader = $1 and topic = $2)

-- name: record_xact
-- Transaction of a record.
select xact from events where position = $1 and topic = $2

-- name: next_xact
-- Transaction id that the next writing transaction gets.
select pg_snapshot_xmax(pg_current_snapshot())

-- name: is_running_below
-- Whether a transaction below $1 is still running.
select pg_snapshot_xmin(pg_current_snapshot()) < $1

-- name: restamp_events
-- Give all records one transaction id, which orders them by position.
update events set xact = $1::xid8

-- name: delete_expired_ranges
-- Forget all expired ranges.
delete from expired_ranges

-- name: consumer_offsets
-- Stored offsets of a group and topic.
select partition, next_offset from consumer_offsets where reader = $1 and topic = $2

-- name: all_consumer_offsets
-- Stored offsets of all groups.
select reader, topic, partition, next_offset from consumer_offsets

-- name: lock_expired_batches
-- Lock the removal of records until the transaction ends.
select from expired_batches for update

-- name: count_events_by_time
-- Number of records of topics $1 from $2 until $3 by topic and interval of $4 seconds, of tenant $5 or of all.
select to_timestamp(floor(extract(epoch from appended_at) / $4::float8) * $4::float8) as start, topic, count(*)::int as count
from events
where topic = any ($1::text[]) and appended_at >= $2 and appended_at < $3 and ($5::text is null or headers ->> 'ce_tenant' = $5)
group by 1, 2 order by 1, 2

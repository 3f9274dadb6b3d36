-- name: declare_source
-- Declare a source, or redeclare a removed one with a higher epoch.
-- If two tenants declare the same name, the first one keeps it.
insert into sources (name, ce_source, spec, epoch) values ($1, $2, $3, $4)
on conflict (name) do update set spec = excluded.spec, epoch = excluded.epoch, resets = '[]', removed = false, withdraw = false
where sources.spec is null or sources.spec ->> 'tenant' = excluded.spec ->> 'tenant'

-- name: end_source
-- Mark a source as removed.
update sources set removed = true, withdraw = $2 where name = $1

-- name: reset_source
-- Record that a source's sequence numbers restart. An undeclared producer is stored under its ce_source.
insert into sources (name, ce_source, epoch, resets) values ($1, $1, $2, jsonb_build_array($3::jsonb))
on conflict (name) do update set epoch = greatest(sources.epoch, excluded.epoch), resets = sources.resets || excluded.resets

-- name: source_overview
-- Sources with the status of their readers.
select s.name, s.ce_source, s.spec, s.epoch, s.resets, s.removed, s.withdraw,
  (select count(*) from documents d where d.source = s.ce_source and d.tenant = s.spec ->> 'tenant' and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest)) as documents,
  (select count(*) from source_rows r where r.source = s.name and r.is_pending) as pending,
  (select count(distinct c.key) from source_changes c where c.source = s.name and not c.is_deleted and not exists (
     select 1 from source_rows r where r.source = c.source and r.key = c.key)) as incomplete,
  (select last_change_at from source_states t where t.source = s.name) as last_change_at,
  (select n.value from source_notes n where n.source = s.name and n.key = 'status') as status
from sources s order by s.name

-- name: source_documents
-- External ids of a source's documents that are not withdrawn.
select external_id from documents
where source = $1 and external_id > $2 and latest is not null and (withdrawn is null or withdrawn < latest)
order by external_id limit $3

-- name: acquire_source_lease
-- Acquire the lease that makes one process the reader of a source.
-- Succeeds if the lease is free, ours, expired, or its process is gone.
update source_states set lease_owner = $2, lease_until = clock_timestamp() + make_interval(secs => $3)
where source = $1
  and case
    when lease_owner is null or lease_owner = $2 or lease_until < clock_timestamp() then true
    -- A process locks its name as long as it lives, see PgSourceStore.open_session.
    else pg_try_advisory_xact_lock_shared(hashtext('anabranch sources ' || lease_owner))
  end
returning 1

-- name: source_linked
-- These row keys and all keys they were renamed from or to.
with recursive linked (key) as (
  select unnest($2::text[])
  union
  select case when c.key = l.key then c.old_key else c.key end
  from linked l join source_changes c on c.source = $1 and c.old_key is not null and (c.key = l.key or c.old_key = l.key)
)
select key from linked

-- name: source_changes
-- Stored changes of these source rows.
select key, table_name as "table", epoch, sequence, is_snapshot_read, is_deleted, columns, unchanged_columns, old_key from source_changes where source = $1 and key = any($2::text[])

-- name: add_source_changes
-- Store changes of source rows; existing ones stay.
insert into source_changes (source, key, epoch, sequence, is_snapshot_read, table_name, is_deleted, columns, unchanged_columns, old_key)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict do nothing

-- name: prune_source_changes
-- Delete changes that no later change needs.
-- These are older than a complete change, not among the newest 16, and older than a week or than the newest 256.
delete from source_changes c using (
  select key, epoch, sequence, is_snapshot_read, is_deleted,
    row_number() over w as age,
    -- A newer change with all columns: no later change needs a value from before it.
    bool_or(unchanged_columns = '{}') over (w rows between unbounded preceding and 1 preceding) as covered,
    added_at < clock_timestamp() - interval '7 days' as old
  from source_changes where source = $1 and key = any($2::text[])
  window w as (partition by key order by epoch desc, sequence desc, is_snapshot_read, is_deleted)
) known
where c.source = $1 and (c.key, c.epoch, c.sequence, c.is_snapshot_read, c.is_deleted) = (known.key, known.epoch, known.sequence, known.is_snapshot_read, known.is_deleted)
  -- The margin is for changes that arrive late and are ordered before the newest ones.
  and known.covered and known.age > 16 and (known.old or known.age > 256)

-- name: upsert_source_row
-- Store the last published state of a source row.
insert into source_rows (source, key, table_name, epoch, sequence, step, digest, external_id, is_live, released_ids, is_pending)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (source, key) do update set table_name = excluded.table_name, epoch = excluded.epoch, sequence = excluded.sequence, step = excluded.step,
  digest = excluded.digest, external_id = excluded.external_id, is_live = excluded.is_live, released_ids = excluded.released_ids, is_pending = excluded.is_pending

-- name: advance_source_progress
-- Store up to which offset a source partition is applied.
insert into source_progress (source, topic, partition, next_offset) values ($1, $2, $3, $4)
on conflict (source, topic, partition) do update set next_offset = greatest(source_progress.next_offset, excluded.next_offset)

-- name: source_floors
-- Raise the floors of a source table; a floor never decreases.
insert into source_tables (source, table_name, truncated, read) values ($1, $2, coalesce($3::bigint[], '{0,0}'), coalesce($4::bigint[], '{0,0}'))
on conflict (source, table_name) do update
  set truncated = greatest(source_tables.truncated, excluded.truncated), read = greatest(source_tables.read, excluded.read)

-- name: record_snapshot_end
-- Record the end of a full snapshot; rows it did not read are withdrawn once all read rows are applied.
insert into source_tables (source, table_name, ended, ended_topic, ended_ends, ended_at) values ($1, $2, $3, $4, $5, clock_timestamp())
on conflict (source, table_name) do update set ended = excluded.ended, ended_topic = excluded.ended_topic, ended_ends = excluded.ended_ends,
  ended_at = excluded.ended_at
-- The same end, read again while its snapshot is being applied, changes nothing.
where source_tables.ended is null or source_tables.ended < excluded.ended

-- name: source_ended_snapshots
-- Ended snapshots that are not swept, and per partition the range that is not applied yet.
select t.table_name, t.ended, t.ended_topic as topic, (
  select coalesce(jsonb_object_agg(e.key, jsonb_build_array(coalesce(p.next_offset, 0), e.value::bigint)), '{}')
  from jsonb_each_text(t.ended_ends) e
  left join source_progress p on p.source = t.source and p.topic = t.ended_topic and p.partition = e.key::int
  where e.value::bigint > coalesce(p.next_offset, 0)
) as unread
from source_tables t where t.source = $1 and t.ended is not null

-- name: source_live_below
-- Rows whose documents are live and were last published below a mark.
select key from source_rows where source = $1 and table_name = $2 and is_live and (epoch, sequence) < ($3, $4) and key > $5 order by key limit $6

-- name: untracked_source_documents
-- Documents of a source that its reader's state does not contain.
select d.external_id, d.latest[1:2] as mark from documents d
where d.source = $2 and d.external_id > $4 and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and d.latest[1:2] < $3::bigint[]
  -- Left from an earlier state of the reader, which was deleted or lost.
  and not exists (select 1 from source_rows r where r.source = $1 and r.external_id = d.external_id)
order by d.external_id limit $5

-- name: delete_source_state
-- Delete all stored state of a source.
with a as (delete from source_changes where source = $1), b as (delete from source_rows where source = $1),
  c as (delete from source_tables where source = $1), d as (delete from source_progress where source = $1),
  e as (delete from source_notes where source = $1)
delete from source_states where source = $1

-- name: table_columns
-- Columns of a source table, and their ordinal in its primary key.
select a.attname as name, a.atttypid as oid, array_position(i.indkey::int2[], a.attnum) + 1 as in_key
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_index i on i.indrelid = c.oid and i.indisprimary
where n.nspname = $1 and c.relname = $2 and a.attgenerated = '' order by a.attnum

-- name: slot_state
-- State of slot $1, its publication of table $2.$3, and the flushed WAL position; null without a slot.
select
  (select wal_status from pg_replication_slots where slot_name = $1 and database = current_database()) as wal_status,
  (select confirmed_flush_lsn - '0/0'::pg_lsn from pg_replication_slots where slot_name = $1 and database = current_database()) as advanced,
  exists (select from pg_publication_tables where pubname = $1 and schemaname = $2 and tablename = $3) as published,
  pg_current_wal_flush_lsn() - '0/0'::pg_lsn as flushed

-- name: peek_changes
-- Open a cursor over changes that the slot was not yet advanced past, in whole transactions.
-- `with hold` lets the cursor outlive its transaction, so that none is open while changes are read.
declare changes no scroll cursor with hold for
select lsn - '0/0'::pg_lsn as sequence, data from pg_logical_slot_peek_binary_changes($1, null, $2, 'proto_version', '1', 'publication_names', $3)

-- name: slot_start
-- Sequence from which a slot needs the write-ahead log.
select restart_lsn - '0/0'::pg_lsn as sequence from pg_replication_slots where slot_name = $1

-- name: advance_slot
-- Advance a slot, so that its server can remove older write-ahead log.
select pg_replication_slot_advance($1, '0/0'::pg_lsn + $2::numeric)

-- name: has_publication
-- Whether a publication exists.
select 1 from pg_publication where pubname = $1

-- name: drop_slot
-- Drop a slot if it exists.
select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1

-- name: source_table_floors
-- Floors of the tables of a source.
select table_name, truncated, read from source_tables where source = $1

-- name: source_rows
-- Last published states of source rows.
select *, table_name as "table" from source_rows where source = $1 and key = any($2::text[])

-- name: touch_source
-- Record the time of a change.
update source_states set last_change_at = clock_timestamp() where source = $1

-- name: mark_source_row_published
-- Mark a source row as published, unless its state has changed since.
update source_rows
set is_pending = false, released_ids = '{}'
-- A newer state, stored while the older one was published, is still owed.
where source = $1 and key = $2 and (epoch, sequence, step, digest) = ($3::int, $4::bigint, $5::int, $6::text)

-- name: pending_source_rows
-- Rows whose last state is not published yet, after a key.
select key from source_rows where source = $1 and is_pending and key > $2 order by key limit $3

-- name: end_snapshot_sweep
-- Mark an ended snapshot as swept.
-- A newer snapshot may have ended during the sweep.
update source_tables set ended = null where source = $1 and table_name = $2 and ended = $3::bigint[]

-- name: add_source_state
-- Insert the state of a source; an existing one stays.
insert into source_states (source) values ($1) on conflict do nothing

-- name: source_state_id
-- Random id of a source's state.
select state_id from source_states where source = $1

-- name: has_source_state
-- Whether a source has stored state.
select 1 from source_states where source = $1

-- name: delete_source_note
-- Delete a note of a source.
delete from source_notes where source = $1 and key = $2

-- name: upsert_source_notes
-- Store notes of a source.
insert into source_notes (source, key, value)
select $1, key, value from unnest($2::text[], $3::jsonb[]) as notes (key, value)
on conflict (source, key) do update set value = excluded.value

-- name: source_notes
-- Notes of a source.
select key, value from source_notes where source = $1

-- name: release_source_lease
-- Release the lease of a source.
update source_states set lease_owner = null where source = $1 and lease_owner = $2

-- name: declared_sources
-- Declared sources, including removed ones.
select * from sources where spec is not null order by name

-- name: source_epochs
-- Epochs of all sources.
select ce_source, epoch from sources

-- name: has_numbered_documents
-- Whether a document comes from a source that numbers its changes.
select 1 from documents where source = $1 and numbered limit 1

-- name: erasable
-- Documents in an erasure scope of which any data is left.
-- A single document also counts if only a key, a dead letter or a job names it; keys of runs, feedback, facts and
-- entities are no documents. Facts belong to the scopes `fact` and `tenant`, entities with aliases or corrections and saved questions to `tenant`. Events that failed at ingress belong to the collection that they name, or, if their document is
-- unreadable, to their tenant under their own id.
select id from documents where tenant = $1 and latest is not null and case $2 when 'document' then id::text = $3 when 'collection' then collection = $3 else $2 = 'tenant' end
union
select subject from keystore.keys where tenant = $1 and subject::text = $3 and $2 = 'document' and destroyed_at is null
  and not exists (select from runs r where r.id = subject) and not exists (select from feedback f where subject in (f.id, f.run_id))
  and not exists (select from facts f where f.id = keys.subject) and not exists (select from entity_aliases a where a.entity_id = keys.subject)
  and not exists (select from entity_corrections c where c.entity_id = keys.subject)
  and not exists (select from standing_questions q where q.id = keys.subject)
union
select document_id from ingress_failures where tenant = $1 and document_summary ->> 'collection' = $3 and $2 = 'collection'
union
select coalesce(document_id, event_id) from dead_letters
where tenant = $1 and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
union
select document_id from jobs where tenant = $1 and (document_id::text = $3 and $2 = 'document' or $2 = 'tenant')
union
select id from facts where tenant = $1 and ($2 = 'tenant' or $2 = 'fact' and id::text = $3)
union
select entity_id from entity_aliases where tenant = $1 and $2 = 'tenant'
union
select entity_id from entity_corrections where tenant = $1 and $2 = 'tenant'
union
select id from standing_questions where tenant = $1 and $2 = 'tenant'
order by id

-- name: erasable_ids
-- Internal ids of producer events about these documents, by which blobs and dead letters are named.
-- Excludes events of another life, and uploads after $2.
with lives as (
  -- Sent again after the withdrawal: a life of its own, which this erasure leaves alone.
  select r.accepted_id from documents d join document_revisions r on r.document_id = d.id and r.ord > d.withdrawn where d.id = any($1::uuid[])
), named as (
  select accepted_id as id from document_revisions where document_id = any($1::uuid[])
  union
  select accepted_id from document_amendments where document_id = any($1::uuid[])
  union
  select id from jobs where document_id = any($1::uuid[]) and created_at < $2
  union
  select event_id from dead_letters where coalesce(document_id, event_id) = any($1::uuid[])
)
select id from named where id not in (select accepted_id from lives) order by id

-- name: erasable_events
-- Number of log events about these documents, facts and entities. Of an alias and a correction, the last decision counts.
select (select count(distinct (log_topic, log_partition, log_offset)) from revision_positions where document_id = any($1::uuid[]))
  + (select coalesce(sum(cardinality(log_offsets)), 0)::bigint from facts where id = any($1::uuid[]))
  + (select count(*) from (
       select decided_at from entity_aliases where entity_id = any($1::uuid[])
       union
       select unnest(array[typed_at, merged_at]) from entity_corrections where entity_id = any($1::uuid[])
     ) decided where decided_at >= 0)

-- name: source_names
-- Number of these documents that their sources still contain.
with named (source, external_id) as (
  select source, external_id from documents where id = any($1)
  union
  select source, fields ->> 'external_id' from document_revisions where document_id = any($1)
)
select count(distinct (s.name, n.external_id))
from named n join sources s on s.ce_source = n.source
where exists (select from source_rows r where r.source = s.name and r.external_id = n.external_id and r.is_live)
  or exists (select from source_notes o where o.source = s.name and o.key = 'item:' || n.external_id and (o.value ->> 'live')::bool)

-- name: citing_runs
-- Runs whose answer, candidates or numbers name one of these documents or facts.
select distinct r.id
from runs r, lateral (
  -- At any depth: the shapes of answers and candidates may change.
  select jsonb_path_query(r.response, 'lax $.**.document_id') #>> '{}' as named
  union all
  select jsonb_path_query(r.candidates, 'lax $.**.document_id') #>> '{}'
  union all
  select jsonb_path_query(r.run_record, 'lax $.**.document_id') #>> '{}'
  union all
  select jsonb_path_query(r.run_record, 'lax $.**.fact_id') #>> '{}'
) cited
where r.tenant = $1 and cited.named = any($2)
order by r.id

-- name: citing_feedback
-- Feedback about passages of these documents, or about answers that cite them.
select id from feedback where tenant = $1 and run_id = any($3)
union
select feedback_id from judgements where tenant = $1 and document_id = any($2)
order by id

-- name: record_blobs
-- Blobs of dead-lettered records.
select blob ->> 'key' as key
from dead_letters, unnest(array[record, headers]) blob
where coalesce(document_id, event_id) = any($1::uuid[]) and blob is not null

-- name: erase_runs
-- Clear the contents of runs that cite erased documents; the runs stay. Saved questions that they answered last are asked
-- again: the outcome of the document's removal, which asks them too, may be deleted before it is matched.
with asked as (
  update standing_questions set due_at = coalesce(due_at, now()) where run_id = any($1) and request is not null
)
update runs set request = null, response = null, candidates = '[]', numbers = '{}', run_record = null
where id = any($1) and (request, response, run_record) is distinct from (null, null, null)

-- name: erase_source_changes
-- Delete stored columns of the documents' source rows, also under keys they had before.
-- From the names to the rows' keys, then back along the keys they had before.
with recursive named (source, external_id) as (
  select source, external_id from documents where tenant = $1 and id = any($2)
  union
  select source, fields ->> 'external_id' from document_revisions where tenant = $1 and document_id = any($2)
), lives (source, key, epoch, sequence) as (
  select s.name, r.key, 2147483647, 9223372036854775807
  from named n join sources s on s.ce_source = n.source join source_rows r on r.source = s.name and r.external_id = n.external_id
  union
  -- Only up to the rename: the old key may belong to another row since.
  select c.source, c.old_key, c.epoch, c.sequence
  from lives l join source_changes c on c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence) and c.old_key is not null
)
delete from source_changes c using lives l where c.source = l.source and c.key = l.key and (c.epoch, c.sequence) <= (l.epoch, l.sequence)

-- name: erase_source_names
-- Delete the external ids of documents that their sources no longer contain.
with named (source, external_id) as (
  select source, external_id from documents where id = any($1)
  union
  select source, fields ->> 'external_id' from document_revisions where document_id = any($1)
), remembered as (
  select s.name, n.external_id from named n join sources s on s.ce_source = n.source
), rows as (
  delete from source_rows r using remembered m where r.source = m.name and r.external_id = m.external_id and not r.is_live returning 1
)
delete from source_notes n using remembered m where n.source = m.name and n.key = 'item:' || m.external_id and not coalesce((n.value ->> 'live')::bool, false)

-- name: erase_ingress_events
-- Delete processed records of these producer events ($2) and ingress dead letters ($1) from topic `raw`.
-- Only on the Postgres log.
with places as (
  select log_offset from inbox where generation = '' and stage = 'receive' and log_topic = 'raw' and event_id = any($2::uuid[]) and is_reaction_done
  union
  select log_offset from dead_letters where stage = 'receive' and log_topic = 'raw' and coalesce(document_id, event_id) = any($1::uuid[])
), deleted as (
  delete from events e using places p where e.topic = 'raw' and e.position = p.log_offset returning e.topic, e.xact, e.position
), {record_expired_ranges}
select count(*) from deleted

-- name: erase_outcomes
-- Delete outcomes on the Postgres log that name these documents or their unreadable events.
with deleted as (
  delete from events where topic = 'outcomes' and (headers ->> 'ce_document' = any($1) or headers ->> 'ce_causationid' = any($2))
  returning topic, xact, position
), {record_expired_ranges}
select count(*) from deleted

-- name: replace_event
-- Replace headers and value of the record of topic $1 at offset $2.
update events set headers = $3::text::jsonb, value = $4 where topic = $1 and position = $2

-- name: erase_withdrawn_rows
-- Delete rows of the withdrawn life from `{table}`.
delete from {table} t using unnest($1::uuid[]) k (document_id)
where t.document_id = k.document_id
  and not exists (select from documents d where d.id = t.document_id and d.withdrawn is not null and t.ord > d.withdrawn)

-- name: erase_jobs
-- Delete jobs of these documents, except those of unread uploads and of another life.
-- A job may be opened after its event was read, so one before $2, or with a handled event, counts as read. Ingress
-- keeps the event id.
with deleted as (
  delete from jobs j
  where j.document_id = any($1) and not exists (select from document_revisions r where r.document_id = j.document_id and r.accepted_id = j.id)
    and (j.created_at < $2 or exists (select from inbox h where h.generation = '' and h.stage = 'receive' and h.event_id = j.id and h.is_reaction_done))
  returning j.id
)
-- The claim stays: a replayed or repeated event must not bring the document back.
update inbox h set payload_sha256 = 'erased', owed_records = null from deleted g where h.generation = '' and h.stage = 'receive' and h.event_id = g.id

-- name: erase_document_rows
-- Delete documents that have had no revision since their withdrawal.
-- If events stay readable ($2), reduce them to bare tombstones, or a rebuild would restore the documents.
with deleted as (
  delete from documents where id = any($1) and latest <= withdrawn and not $2
)
update documents d set
  (external_id, source, numbered, source_uri, filename, media_type, title, language, collection, tags, metadata, document_date, content_sha256, blob) =
    (null, '', false, null, null, null, null, null, null, '{}', '{}', null, null, null),
  (latest, revision, event_id, accepted_id, received_at, amended, readers) = (null, 0, null, null, null, '{}', '{}')
where id = any($1) and latest <= withdrawn and $2

-- name: delete_erased_owners
-- Delete owners of erased documents, unless the documents were sent again.
delete from document_owners o where document_id = any($1)
  and not exists (select from documents d where d.id = o.document_id and d.latest is not null)

-- name: erase_amendments
-- Delete amendments of documents that no longer exist.
delete from document_amendments a where a.document_id = any($1::uuid[]) and not exists (select from documents d where d.id = a.document_id)

-- name: erasure_done
-- Mark an erasure as done and keep only its counts.
with items as (
  delete from erasure_items where receipt_id = $1 returning place
), subjects as (
  delete from erasure_subjects where receipt_id = $1
)
insert into erasure_counts (receipt_id, place, removed)
select $1, place, count(*) from items group by place
union all
select $1, $2, 1

-- name: obtain_keys
-- Return the current key of each subject, inserting the proposed one if there is none.
-- Ordered inserts prevent deadlocks; `do update` makes existing rows appear in `returning`.
with wanted as (
  select * from unnest($1::uuid[], $2::text[], $3::uuid[], $4::bytea[], $5::bigint[]) k (id, tenant, subject, wrapped, slot)
)
insert into keystore.keys (id, tenant, subject, wrapped, slot)
select id, tenant, subject, wrapped, slot from wanted order by subject, tenant
on conflict (subject, tenant) where destroyed_at is null do update set subject = excluded.subject
returning id, tenant, subject, wrapped as wrapped_key, slot

-- name: erasure_columns
-- Included columns of an erasure.
receipt_id, tenant, scope, name, requested_at, documents, removed, events, method, remains, raw_until, completed_at

-- name: add_erasure_subjects
-- Record documents of an erasure.
insert into erasure_subjects values ($1, $2) on conflict do nothing

-- name: count_document_rows
-- Number of rows of `{table}` about these documents.
select count(*) from {table} where document_id = any($1)

-- name: count_documents
-- Number of these documents that have a revision.
select count(*) from documents where id = any($1) and latest is not null

-- name: count_dead_letters
-- Number of dead letters about these documents or events.
select count(*) from dead_letters where coalesce(document_id, event_id) = any($1)

-- name: insert_erasure_count
-- Store the first count of a place; an existing one stays.
insert into erasure_counts values ($1, $2, $3) on conflict do nothing

-- name: has_erasure_counts
-- Whether the documents of an erasure were recorded.
select exists (select from erasure_counts where receipt_id = $1)

-- name: add_unreadable_subjects
-- Add documents to an erasure that is still open.
insert into erasure_subjects
select receipt_id, unnest($2::uuid[])
from erasures
where receipt_id = $1 and completed_at is null
on conflict do nothing

-- name: unwithdrawn_orders
-- Latest orders of documents that are not withdrawn.
select id, latest
from documents
where tenant = $1 and id = any($2) and latest is not null and (withdrawn is null or withdrawn < latest)

-- name: withdrawn_orders
-- Withdrawals of these documents.
select id, withdrawn from documents where id = any($1)

-- name: latest_orders
-- Latest orders of these documents, including withdrawals.
select id, latest from documents where tenant = $1 and id = any($2) and latest is not null

-- name: content_sizes
-- Contents of all revisions of these documents, with their size in bytes.
select distinct content_sha256, (blob ->> 'size')::bigint as size
from document_revisions
where document_id = any($1)
order by 1

-- name: tenant_ids
-- Ids of a tenant's rows in `{table}`.
select id from {table} where tenant = $1 order by id

-- name: erase_feedback
-- Delete feedback that cites erased documents.
delete from feedback where id = any($1)

-- name: erased_documents
-- The documents among $1 that are erased or are being erased.
select id from unnest($1::uuid[]) k (id)
where exists (select from erasure_subjects s where s.subject = k.id) or not exists (select from documents d where d.id = k.id and d.latest is not null)

-- name: lock_erased_documents
-- Lock documents in id order, so that writers cannot deadlock.
select from documents where id = any($1) order by id for update

-- name: erase_ingress_payloads
-- Replace the payload hashes of erased ingress events, which ingress then recognizes by id only.
update inbox
set payload_sha256 = 'erased', owed_records = null
where generation = '' and stage = 'receive' and event_id = any($1)

-- name: erase_rows_of_documents
-- Delete the rows of `{table}` about these documents.
delete from {table} where document_id = any($1)

-- name: erase_dead_letters
-- Delete dead letters about these documents or events; of those with blobs only where $2 has all, unless it is null.
delete from dead_letters
where coalesce(document_id, event_id) = any($1)
  and ($2::text[] is null or not exists (select from unnest(array[record, headers]) blob where blob ->> 'key' <> all($2)))

-- name: record_erasure_items
-- Record items of a place before they are deleted.
insert into erasure_items select $1, $2, unnest($3::uuid[]) on conflict do nothing

-- name: erasure_counts
-- Counts of an erasure that are not zero, by place.
select place, removed from erasure_counts where receipt_id = $1 and removed > 0 order by place

-- name: erasure_subjects
-- Documents of an erasure.
select subject from erasure_subjects where receipt_id = $1 order by subject

-- name: add_erasure_count
-- Add to the count of a place.
insert into erasure_counts
values ($1, $2, $3)
on conflict (receipt_id, place) do update set removed = erasure_counts.removed + excluded.removed

-- name: insert_erasure
-- Store an erasure request.
insert into erasures (receipt_id, tenant, scope, name, requested_at)
values ($1, $2, $3, $4, $5)
on conflict do nothing

-- name: complete_erasure
-- Store the receipt of a completed erasure.
update erasures
set documents = $2, removed = $3, events = $4, method = $5, remains = $6, raw_until = $7, completed_at = $8
where receipt_id = $1

-- name: find_erasure
-- An erasure of a tenant by its receipt.
select {erasure_columns} from erasures where tenant = $1 and receipt_id = $2

-- name: completed_erasures
-- Receipts of a tenant's completed erasures.
select receipt_id from erasures where tenant = $1 and completed_at is not null

-- name: count_unknown_erasures
-- Number of these receipts that are unknown.
select count(*) from unnest($1::uuid[]) r (id) where not exists (select from erasures where receipt_id = r.id)

-- name: newest_erasures
-- Erasures of a tenant, newest first.
select {erasure_columns} from erasures where tenant = $1 order by requested_at desc, receipt_id limit $2

-- name: scrubbed_tables
-- Our tables with their size; statistics last, since rewriting the others replaces their rows in them.
select c.oid::regclass::text as name, pg_total_relation_size(c.oid) as bytes
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where (n.nspname in ('anabranch', 'keystore') and c.relkind = 'r' or c.oid = 'pg_catalog.pg_statistic'::regclass) and pg_relation_size(c.oid) > 0
order by c.oid = 'pg_catalog.pg_statistic'::regclass, 1

-- name: clear_statistics
-- Clear the statistics of our tables.
select count(pg_clear_attribute_stats(schemaname, tablename, attname, inherited))
from pg_stats
where schemaname in ('anabranch', 'keystore')

-- name: inherited_statistics
-- Partitioned tables that have statistics of their own.
select distinct format('%I.%I', schemaname, tablename) as name
from pg_stats
where inherited and schemaname in ('anabranch', 'keystore')

-- name: has_older_snapshot
-- Whether a transaction may still see rows that were deleted before transaction $1.
select exists (
  select from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null and age(backend_xmin) >= age($1::text::xid)
)

-- name: can_switch_wal
-- Whether old write-ahead log is removed instead of recycled, and we may switch it.
select current_setting('wal_recycle') = 'off' and has_function_privilege('pg_switch_wal()', 'execute')
  and (pg_has_role('pg_checkpoint', 'usage') or (select rolsuper from pg_roles where rolname = current_user))

-- name: is_wal_retained
-- Whether a replication slot retains write-ahead log before $1.
select exists (select from pg_replication_slots where restart_lsn < $1::text::pg_lsn)

-- name: can_clear_statistics
-- Whether this server has the function that clears statistics.
select to_regproc('pg_catalog.pg_clear_attribute_stats') is not null

-- name: current_xid
-- Id of the current transaction.
select pg_current_xact_id()::xid::text

-- name: erased_tenant
-- Tenant of an erasure, if it erased all of it.
select tenant from erasures where receipt_id = $1 and scope = 'tenant'

-- name: count_unmentioned_aliases
-- Aliases that people gave, removed ones too, to entities that no document of the tenant mentions.
select count(*)::int from current_aliases a
where a.tenant = $1 and not exists (select from entity_mentions m where m.tenant = $1 and m.entity_id = a.entity_id)

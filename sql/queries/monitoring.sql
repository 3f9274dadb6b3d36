-- name: reader_status
-- Reader statuses renewed within $1 seconds.
select reader, topic, partition, code, detail, remedy, since from reader_status
where updated_at > clock_timestamp() - make_interval(secs => $1) order by reader, topic, partition

-- name: upsert_reader_status
-- Store why a reader is stalled; `since` stays while the same reason is renewed within $7 seconds.
insert into reader_status as p (reader, topic, partition, code, detail, remedy) values ($1, $2, $3, $4, $5, $6)
on conflict (reader, topic, partition) do update set
  code = excluded.code, detail = excluded.detail, remedy = excluded.remedy, updated_at = excluded.updated_at,
  since = case when p.detail = excluded.detail and p.updated_at > excluded.updated_at - make_interval(secs => $7) then p.since else excluded.since end

-- name: stage_reader
-- Lease of a group on a topic, and whether its process is connected.
select lease_owner is not null and lease_until > clock_timestamp() as leased, lease_until,
       exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || lease_owner) as seen
from log_readers where reader = $1 and topic = $2

-- name: oldest_running_work
-- The stage's oldest unfinished work, of generation $2 or of all.
select document_id, part, attempts, log_topic as topic, log_partition as partition, log_offset as "offset",
       extract(epoch from clock_timestamp() - started_at)::float8 as seconds
from job_stages
where stage = $1 and ($2::text is null or generation = $2) and state = 'running'
order by started_at limit 1

-- name: lock_holder
-- The transaction at the head of a lock queue in which one of ours has waited for $1 seconds.
with recursive ahead (pid) as (
  select unnest(pg_blocking_pids(l.pid))
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
  where not l.granted and a.datname = current_database() and a.application_name like 'anabranch %' and l.waitstart <= clock_timestamp() - make_interval(secs => $1)
  union
  select unnest(pg_blocking_pids(pid)) from ahead
)
select a.pid, a.application_name as application, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds, left(a.query, 200) as query
from ahead join pg_stat_activity a using (pid)
-- The head of the queue waits for no one itself.
where cardinality(pg_blocking_pids(a.pid)) = 0
order by a.xact_start limit 1

-- name: blocking_transactions
-- Transactions that have blocked writes to our tables, or reads, for $1 seconds, oldest first.
select l.pid, coalesce(a.application_name, 'prepared') as application, coalesce(a.state, 'prepared') as state,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8 as seconds, coalesce(left(a.query, 200), p.gid) as query,
       array_agg(distinct c.relname::text order by c.relname::text) as tables, bool_or(l.mode = 'AccessExclusiveLock') as unreadable
from pg_locks l
join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p')
join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('anabranch', 'keystore')
left join pg_stat_activity a on a.pid = l.pid
-- Prepared transactions have locks but no process.
left join pg_prepared_xacts p on l.virtualtransaction = '-1/' || p.transaction
where l.granted and l.database = (select oid from pg_database where datname = current_database()) and l.pid is distinct from pg_backend_pid()
  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and coalesce(a.xact_start, p.prepared) <= clock_timestamp() - make_interval(secs => $1)
group by l.pid, a.application_name, a.state, a.xact_start, a.query, p.prepared, p.gid
order by seconds desc

-- name: direct_access
-- Roles for direct reads, whether they have access, and readable tables without row-level security.
with reader as (
  select oid, rolname from pg_roles where rolname in ('authenticated', 'anon', 'anabranch_reader')
), relation as (
  select c.oid, c.relname, n.nspname || '.' || c.relname as name,
    c.relrowsecurity or coalesce(c.reloptions @> '{security_invoker=true}', false) as secured
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname in ('anabranch', 'keystore', 'credentials') and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and exists (select from reader r where has_schema_privilege(r.oid, n.oid, 'usage') and has_any_column_privilege(r.oid, c.oid, 'select'))
)
select exists (select from reader where rolname <> 'anon') as has_role,
  exists (select from relation where name = 'anabranch.documents') as is_granted,
  array(select name from relation where not secured and relname <> 'live_generation' order by name) as unsecured

-- name: orphaned_rows
-- Number of orphaned rows in `{table}`.
-- Orphaned: older than the visible or withdrawn order, of an unknown document, and, if no stage has work left
-- ($1), of a revision that is neither visible nor failed.
select count(*)::int
from {table} t
left join documents d on d.id = t.document_id
left join visible v on v.generation = t.generation and v.document_id = t.document_id
where d.id is null or t.ord < v.ord or t.ord < d.withdrawn
  or ($1::bool and t.ord is distinct from v.ord and not exists (
    select from revision_dead_letters b where b.document_id = t.document_id and b.ord = t.ord and b.generation in ('', t.generation)
  ))

-- name: orphaned_other_rows
-- Rows of unknown documents, pointers with missing chunks, and amendments that a withdrawal has ended.
select 'visible' as name, count(*)::int as rows
from visible v
left join documents d on d.id = v.document_id
where d.id is null or v.ord < d.withdrawn
  or v.chunks <> (select count(*) from child_chunks c where c.generation = v.generation and c.document_id = v.document_id and c.ord = v.ord)
union all
select 'chunk_vectors_missing', count(*)::int
from visible v
join child_chunks c on c.generation = v.generation and c.document_id = v.document_id and c.ord = v.ord
where not exists (select from chunk_vectors n where n.generation = c.generation and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id)
union all
select 'chunk_history', count(*)::int from chunk_history h where not exists (select from documents d where d.id = h.document_id)
union all
select 'document_revisions', count(*)::int from document_revisions r where not exists (select from documents d where d.id = r.document_id)
union all
select 'document_amendments', count(*)::int
from document_amendments a
left join documents d on d.id = a.document_id
where d.id is null or a.ord < d.withdrawn
union all
select 'engine_results', count(*)::int from engine_results m
where not exists (select from documents d where d.id = m.document_id) and not exists (select from inbox h where h.stage = 'receive' and h.event_id = m.document_id)

-- name: lexical_count_mismatches
-- Number of words and configurations whose statistics differ from the visible chunks.
with reported as (
  select generation, tenant, cfg::text, lexeme, sum(delta)::bigint as n from lexical_deltas group by 1, 2, 3, 4
  union all
  select generation, tenant, cfg::text, null, sum(chunks) from corpus_deltas group by 1, 2, 3
), shown as (
  select c.* from child_chunks c join visible v on v.generation = c.generation and v.document_id = c.document_id and v.ord = c.ord
), counted as (
  select generation, tenant, cfg::text, word as lexeme, count(*)::bigint as n from shown cross join unnest(tsvector_to_array(tsv)) word group by 1, 2, 3, 4
  union all
  select generation, tenant, cfg::text, null, count(*) from shown group by 1, 2, 3
)
select
  count(*) filter (where coalesce(t.lexeme, c.lexeme) is not null)::int as lexical_counts,
  count(*) filter (where coalesce(t.lexeme, c.lexeme) is null)::int as corpus_counts
from (select * from reported where n <> 0) t
full join counted c on c.generation = t.generation and c.tenant = t.tenant and c.cfg = t.cfg and c.lexeme is not distinct from t.lexeme
where t.n is distinct from c.n

-- name: checksum_visible
-- Row counts and sums of row hashes of generation $1, by table.
-- Excludes orders, event ids and clock times, which differ between equal generations. With $2, only documents that
-- this other generation shows in the same revision.
with shown as materialized (
  select v.document_id, v.ord from visible v
  where v.generation = $1
    and ($2::text is null or exists (select from visible o where o.generation = $2 and o.document_id = v.document_id and o.ord = v.ord))
), lines as (
  select 'documents' as name, row(d.id, d.tenant, d.external_id, d.source_uri, d.filename, d.media_type, d.title, d.language, d.collection, d.tags, d.metadata,
    d.document_date, d.content_sha256, d.readers)::text as line
  from documents d join shown s on s.document_id = d.id
  union all
  select 'texts', row(t.document_id, t.tenant, t.title, t.language, t.media_type, t.content_sha256, t.text_sha256, t.characters, t.pages, t.document_date, t.warnings)::text
  from revision_texts t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'parent_chunks', row(t.id, t.document_id, t.tenant, t.ordinal, t.text, t.section, t.char_start, t.char_end, t.pages, t.tokens)::text
  from parent_chunks t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'child_chunks', row(t.id, t.parent_id, t.document_id, t.tenant, t.ordinal, t.kind, t.text, t.prefix, t.char_start, t.char_end, t.spans, t.tokens,
    t.language, t.cfg, t.tsv, t.bm)::text
  from child_chunks t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'chunk_vectors', row(t.chunk_id, t.document_id, t.tenant, t.embedding, t.background_dense, t.background_maxsim)::text
  from chunk_vectors t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'chunk_states', row(t.chunk_id, t.document_id, t.tenant, t.blob_length)::text
  from chunk_states t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'entity_mentions', row(t.id, t.document_id, t.tenant, t.chunk_id, t.entity_id, t.type, t.entity_type, t.key, t.name, t.char_start, t.char_end)::text
  from entity_mentions t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'relations', row(t.id, t.document_id, t.tenant, t.chunk_id, t.subject_id, t.type, t.object_id, t.weight, t.extractor, t.char_start, t.char_end)::text
  from relations t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'claims', row(t.id, t.document_id, t.tenant, t.chunk_id, t.subject_id, t.property, t.value, t.char_start, t.char_end)::text
  from claims t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'visible', row(document_id, tenant, chunks)::text from visible where generation = $1
  union all
  select 'lexical_counts', row(tenant, cfg, lexeme, sum(delta))::text from lexical_deltas where generation = $1 group by tenant, cfg, lexeme having sum(delta) <> 0
  union all
  select 'corpus_counts', row(tenant, cfg, sum(chunks))::text from corpus_deltas where generation = $1 group by tenant, cfg having sum(chunks) <> 0
)
select name, count(*) as rows, sum(('x' || left(md5(line), 16))::bit(64)::bigint)::text as total from lines group by name

-- name: checksum_history
-- Row counts and hashes that only the same log reproduces: revisions, tombstones, superseded texts.
with lines as (
  select 'document_revisions' as name, row(document_id, revision, tenant, title, filename, media_type, content_sha256, fields, forced)::text as line
  from document_revisions
  union all
  select 'tombstones', row(id, tenant, external_id)::text from documents where withdrawn is not null
  union all
  select 'chunk_history', row(document_id, text_sha256, tenant)::text from chunk_history where generation is null
)
select name, count(*) as rows, sum(('x' || left(md5(line), 16))::bit(64)::bigint)::text as total from lines group by name

-- name: count_differing_revisions
-- Number of documents whose visible revision differs between two generations.
select count(*)
from (select document_id, ord from visible where generation = $1) a
full join (select document_id, ord from visible where generation = $2) b using (document_id)
where a.ord is distinct from b.ord

-- name: horizon_holder
-- The oldest open writing transaction, which bounds what readers of the log see.
select pid, application, state, round(seconds, 3)::float8 as seconds, left(query, 200) as query
from (
  select pid, application_name as application, state, extract(epoch from clock_timestamp() - xact_start) as seconds, query, age(backend_xid) as age
  from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
  union all
  select null, 'prepared', 'prepared', extract(epoch from clock_timestamp() - prepared), gid, age(transaction) from pg_prepared_xacts where database = current_database()
) held
order by age desc, seconds desc limit 1

-- name: vector_version
-- Installed or available version of pgvector.
select coalesce(installed_version, default_version) from pg_available_extensions where name = 'vector'

-- name: delete_reader_status
-- Delete the status of a reader that continues.
delete from reader_status where reader = $1 and topic = $2 and partition = $3

-- name: stage_activity
-- Work of each stage in the last $1 seconds, by generation ('' for shared stages).
-- Work that began longer than $2 seconds ago does not count as in flight: its worker may be gone.
select stage, generation,
  count(*) filter (where started_at > w.start)::int as started,
  count(*) filter (where state <> 'running' and ended_at > w.start)::int as finished,
  count(*) filter (where state = 'running')::int as in_flight,
  coalesce(sum(attempts - 1) filter (where started_at > w.start), 0)::int as retries,
  percentile_cont(0.5) within group (order by duration_ms) filter (where state = 'done' and ended_at > w.start) as p50_ms,
  percentile_cont(0.95) within group (order by duration_ms) filter (where state = 'done' and ended_at > w.start) as p95_ms
from (select clock_timestamp() - make_interval(secs => $1) as start, clock_timestamp() - make_interval(secs => $2) as earliest) w
cross join lateral (
  select j.*, j.started_at + make_interval(secs => coalesce(j.duration_ms, 0) / 1000.0) as ended_at
  from job_stages j where j.started_at > w.earliest
) work
group by stage, generation

-- name: tenants
-- Tenants that have documents or API keys.
select tenant from documents union select tenant from credentials.api_keys order by tenant

-- name: table_sizes
-- Tables with their bytes, indexes included, and their estimated rows, the largest first.
select c.relname as "table", pg_total_relation_size(c.oid) as bytes, greatest(c.reltuples, 0)::bigint as rows_estimate
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'anabranch' and c.relkind = 'r'
order by bytes desc, c.relname

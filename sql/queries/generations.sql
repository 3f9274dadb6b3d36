-- name: builds
-- Builds of generations that are not dropped, oldest first; or of generation $1.
select
  g.name, g.config, g.how, g.topics, g.state, g.base, g.purpose, coalesce(b.phase, 'loading') as phase, coalesce(b.paused, false) as paused,
  b.events_per_second, coalesce(b.keep_previous, false) as keep_previous, b.error, b.started_at, coalesce(b.built_at, g.built_at) as built_at, b.events, b.rows,
  coalesce((select jsonb_object_agg(engine, inputs) from generation_engine_calls c where c.generation = g.name), '{}') as engine_calls
from generations g left join generation_builds b on b.generation = g.name
where g.state <> 'dropped' and ($1::text is null or g.name = $1)
order by g.created_at, g.name

-- name: allocate_generation_name
-- Allocate the next generation name; with $1 keep and $2 events per second of its build.
-- Counts dropped and failed generations as well, so that no name is reused.
insert into generation_builds (generation, keep_previous, events_per_second)
select 'g' || 1 + coalesce(max(substring(name from '^g(\d{1,9})$')::int), 0), $1, $2
from (select name from generations union all select generation from generation_builds) names
returning generation

-- name: generation_summaries
-- Generations with their inputs, sizes and builds: generation $1, or all that are not dropped.
-- With a tenant ($3), documents and chunks are the tenant's, and bytes and build are null.
select
  g.name, g.state, g.base, g.purpose, g.created_at, g.built_at, g.config, g.how, g.topics, l.name is not null as live, g.name = p.previous as previous,
  coalesce(v.documents, 0) as documents, coalesce(v.chunks, 0)::bigint as chunks, case when $3::text is null then coalesce(b.bytes, 0)::bigint end as bytes,
  case when $3::text is null and g.state in ('building', 'shadow') then to_jsonb(w) - 'generation' end as build
from generations g
left join live_generation l on l.name = g.name
left join live_generation p on true
left join generation_builds w on w.generation = g.name
left join (select generation, count(*) as documents, sum(chunks) as chunks from visible where $3::text is null or tenant = $3 group by generation) v on v.generation = g.name
left join lateral (
  select sum(pg_total_relation_size(c.oid)) as bytes from pg_class c
  where c.relnamespace = 'anabranch'::regnamespace and c.relkind = 'r' and c.relname = any (select t || '_' || g.name from unnest($2::text[]) t)
) b on true
where case when $1::text is null then g.state <> 'dropped' else g.name = $1 end
order by g.created_at, g.name

-- name: index_size
-- Size of a generation: documents, parts, distinct passages and texts, tokens, and bytes of its tables.
select
  (select count(*) from visible where generation = $1) as documents,
  (select count(*) from visible v join revision_parts s on s.generation = $1 and s.document_id = v.document_id and s.ord = v.ord and s.kind = 'chunks'
   where v.generation = $1) as parts,
  (select count(distinct (p.document_id, p.section, p.text)) from visible v
   join parent_chunks p on p.generation = $1 and p.document_id = v.document_id and p.ord = v.ord where v.generation = $1) as passages,
  (select count(distinct (c.document_id, c.prefix, c.text)) from visible v
   join child_chunks c on c.generation = $1 and c.document_id = v.document_id and c.ord = v.ord where v.generation = $1) as texts,
  (select coalesce(sum(c.tokens), 0) from visible v
   join child_chunks c on c.generation = $1 and c.document_id = v.document_id and c.ord = v.ord where v.generation = $1) as tokens,
  (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where c.relnamespace = 'anabranch'::regnamespace and c.relkind = 'r' and pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%L)', $1::text)
     and i.inhparent <> 'chunk_vectors'::regclass)::bigint as other_bytes,
  (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%L)', $1::text) and i.inhparent = 'chunk_vectors'::regclass)::bigint as vector_bytes

-- name: first_needed
-- First event per partition that the visible revisions of generation $1 were made from.
-- With $2, only of revisions that this generation has not read.
select p.log_topic as topic, p.log_partition as partition, min(p.log_offset) as first
from visible v
join revision_positions p on p.document_id = v.document_id and p.ord = v.ord and p.generation = v.generation
where v.generation = $1
  and ($2::text is null or not exists (
    select from revision_positions o
    where o.generation = $2 and o.document_id = p.document_id and o.ord = p.ord
      and o.log_topic = p.log_topic and o.log_partition = p.log_partition and o.log_offset = p.log_offset
  ))
group by p.log_topic, p.log_partition

-- name: mark_generation_built
-- Mark a building generation as built, so that it can be compared and promoted.
update generations
-- A repeated event must not take a generation back that was promoted since.
set state = case when state = 'building' then 'shadow' else state end, barrier = $2, built_at = coalesce(built_at, clock_timestamp())
where name = $1

-- name: documents_behind
-- Documents visible in generation $1 that are not settled in $2: at most $3 of them, and their number.
-- Settled means visible at the same or a later order, or withdrawn.
select d.id, d.external_id, count(*) over () as total
from visible v
join documents d on d.id = v.document_id
left join visible t on t.generation = $2 and t.document_id = v.document_id
where v.generation = $1 and (t.ord is null or t.ord < v.ord) and (d.withdrawn is null or d.withdrawn < v.ord)
order by v.document_id
limit $3

-- name: promote
-- Make generation $1 live by the decision at offset $2 of topic `control`; the previous one becomes standby.
-- Has no effect if a later decision was applied, or if the generation was dropped since.
with live as (
  update live_generation set name = $1, decided_at = $2, previous = case when name = $1 then previous else name end
  -- Decisions apply in the order of their offsets, however often they are read.
  where decided_at < $2 and exists (select from generations where name = $1 and state <> 'dropped')
  returning name
)
update generations g set state = case when g.name = $1 then 'live' else 'standby' end
from live where g.name = $1 or g.state = 'live'

-- name: begin_drop
-- State of generation $1, and whether it is live.
select g.state, l.name is not null as live
from generations g left join live_generation l on l.name = g.name
where g.name = $1

-- name: mark_generation_dropped
-- Mark a generation as dropped, unless it is live.
update generations set state = 'dropped' where name = $1 and not exists (select from live_generation where name = $1)

-- name: dropped_state_blobs
-- At most $1 token state blobs of dropped generations, and whether another generation uses them.
select d.blob_key,
  exists (
    select from generations g join chunk_states s on s.generation = g.name
    where g.state <> 'dropped' and s.document_id = d.document_id and s.blob_key = d.blob_key
  ) as used
from dropped_states d order by d.blob_key limit $1

-- name: partition_state
-- Whether table $1 is attached to a parent, and whether a detach is in progress.
select inh.inhrelid is not null as attached, coalesce(inh.inhdetachpending, false) as detaching
from pg_class c left join pg_inherits inh on inh.inhrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

-- name: partition_blocker
-- The oldest transaction that has locks on partitions $1 or on their parents $2.
select a.pid, a.application_name as application, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
from pg_locks l
join pg_class c on c.oid = l.relation
join pg_stat_activity a on a.pid = l.pid
where a.pid <> pg_backend_pid() and a.xact_start is not null and c.relnamespace = 'anabranch'::regnamespace
  and (c.relname = any ($1::text[]) or c.relname = any ($2::text[]))
order by a.xact_start
limit 1

-- name: running_transactions
-- Number of our transactions that began before $1: they may read tables that are about to be truncated.
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'anabranch%' and xact_start < $1

-- name: index_state
-- Whether index $1 is valid; no row if it does not exist.
select i.indisvalid
from pg_class c join pg_index i on i.indexrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

-- name: vector_index
-- Partition of `chunk_vectors` for generation $1, and whether its index $2 is valid (null: none).
select partition.oid::regclass::text as partition, i.indisvalid as valid
from pg_inherits inherits
join pg_class partition on partition.oid = inherits.inhrelid
left join pg_class named on named.relname = $2 and named.relnamespace = partition.relnamespace
left join pg_index i on i.indexrelid = named.oid
where inherits.inhparent = 'chunk_vectors'::regclass
  -- By its bound, not its name: names are made from the generation, bounds define it.
  and pg_get_expr(partition.relpartbound, partition.oid) = format('FOR VALUES IN (%L)', $1::text)

-- name: generation_columns
-- Included columns of a generation.
g.name, g.config, g.how, g.topics, g.state

-- name: live_name
-- Name of the live generation.
select name from live_generation

-- name: undropped_names
-- Names of generations that are not dropped.
select name from generations where state <> 'dropped' order by name

-- name: record_dropped_states
-- Record the token state blobs of a generation that is about to lose its rows.
insert into dropped_states
select distinct blob_key, document_id
from chunk_states
where generation = $1
on conflict do nothing

-- name: delete_dropped_states
-- Delete records of blobs that were removed from the blob store.
delete from dropped_states where blob_key = any($1)

-- name: mark_build_done
-- Store the size of a finished build.
update generation_builds
set phase = 'built', events = $2, rows = $3, built_at = coalesce(built_at, clock_timestamp())
where generation = $1

-- name: add_engine_calls
-- Add to the number of inputs that an engine processed for a build.
insert into generation_engine_calls as c (generation, engine, inputs)
values ($1, $2, $3)
on conflict (generation, engine) do update set inputs = c.inputs + excluded.inputs

-- name: lock_live_generation
-- Lock the live generation, which blocks a concurrent switch; returns its name.
select name from live_generation for update

-- name: dropped_names
-- Names of dropped generations.
select name from generations where state = 'dropped' order by name

-- name: has_partitions
-- Whether any of these partitions exists.
select exists (select from pg_class where relnamespace = 'anabranch'::regnamespace and relname = any ($1::text[]))

-- name: previous_name
-- Name of the previous live generation.
select previous from live_generation

-- name: previous_generation
-- The previous generation, unless it is dropped.
select l.name, l.previous, g.state
from live_generation l left join generations g on g.name = l.previous
where g.state <> 'dropped'

-- name: generation_state
-- State of a generation.
select state from generations where name = $1

-- name: live_generation
-- The live generation.
select {generation_columns} from live_generation join generations g using (name)

-- name: generation
-- A generation by name.
select {generation_columns} from generations g where name = $1

-- name: undropped_generations
-- Generations that are not dropped, oldest first.
select {generation_columns} from generations g where state <> 'dropped' order by created_at, name

-- name: generation_names
-- Names of all generations, including dropped ones, oldest first.
select name from generations order by created_at, name

-- name: generation_exists
-- Whether a generation exists and is not dropped.
select exists (select from generations where name = $1 and state <> 'dropped')

-- name: secure_partition
-- Give a partition the row-level security policies of its parent.
select secure_rows($1)

-- name: insert_generation
-- Store a generation; an existing one stays.
insert into generations (name, config, how, topics, state, base, purpose)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing
returning name

-- name: insert_live_generation
-- Make the first generation live.
insert into live_generation (name) values ($1) on conflict do nothing returning name

-- name: mark_generation_live
-- Mark a generation as live.
update generations set state = 'live' where name = $1

-- name: visible_orders
-- Visible orders of these documents.
select document_id, ord from visible where generation = $1 and document_id = any($2::uuid[])

-- name: visible_orders_and_destroyed_keys
-- Visible orders of these documents, and those of the keys $3 that are destroyed.
select document_id, ord, chunks, null::uuid as destroyed_key from visible where generation = $1 and document_id = any($2::uuid[])
union all
select null, null, null, id from keystore.keys where id = any($3::uuid[]) and destroyed_at is not null

-- name: live_visible_orders
-- Visible orders of these documents in the live generation.
select v.document_id, v.ord from visible v join live_generation l on l.name = v.generation where v.document_id = any($1::uuid[])

-- name: visible_revisions
-- Visible revisions: inputs, last consecutive revision with the same content, whether a later one differs.
select v.document_id, r.content_sha256, t.how, r.fields, changed.ord is not null as is_superseded,
       greatest(v.ord, (
         select max(ord) from document_revisions same
         where same.document_id = v.document_id and same.ord > v.ord and (changed.ord is null or same.ord < changed.ord)
       )) as until
from visible v
left join revision_texts t on t.generation = v.generation and t.document_id = v.document_id and t.ord = v.ord
left join document_revisions r on r.document_id = v.document_id and r.ord = v.ord
-- The first later revision that differs, or was forced, ends the run of equal ones.
left join lateral (
  select min(ord) as ord from document_revisions later
  where later.document_id = v.document_id and later.ord > v.ord
    and (later.forced or later.content_sha256 is distinct from r.content_sha256 or later.fields is distinct from r.fields)
) changed on true
where v.generation = $1 and v.document_id = any($2::uuid[])

-- name: activate_revisions
-- Activate the revisions that have all chunk and vector parts; the pointer only moves forward.
-- Also adds the new words to the lexical statistics, subtracts those of the previous revision, and stores the
-- visibility change with event $5, whose pending reaction reads it again. `follows`: rows of older revisions
-- exist.
with candidate as (
  select document_id, ord::bigint[] as ord, tenant, event_id from unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[]) k (document_id, ord, tenant, event_id)
), complete as (
  select c.document_id, c.ord, c.tenant, c.event_id
  from candidate c join revision_parts s on s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord
  group by c.document_id, c.ord, c.tenant, c.event_id
  -- Without any part of a kind `max` is null, and the comparison is not true.
  having count(*) filter (where s.kind = 'chunks') >= max(s.parts) filter (where s.kind = 'chunks')
     and count(*) filter (where s.kind = 'vectors') >= max(s.parts) filter (where s.kind = 'vectors')
-- Evaluated once for all CTEs below.
), flipped as materialized (
  select c.*, v.ord as previous,
         (select count(*) from child_chunks x where x.generation = $1 and x.document_id = c.document_id and x.ord = c.ord)::int as chunks,
         exists (select from revision_parts o where o.generation = $1 and o.document_id = c.document_id and o.ord < c.ord)
           or exists (select from revision_texts o where o.generation = $1 and o.document_id = c.document_id and o.ord < c.ord) as follows
  from complete c left join visible v on v.generation = $1 and v.document_id = c.document_id
  -- Only forward: a late part of an older revision changes nothing.
  where v.ord is null or v.ord < c.ord
), pointed as (
  insert into visible (generation, document_id, ord, tenant, chunks)
  select $1, document_id, ord, tenant, chunks from flipped order by document_id
  -- The document's row is locked, so no other transaction moves this pointer meanwhile.
  on conflict (generation, document_id) do update set ord = excluded.ord, chunks = excluded.chunks
), noted as (
  update inbox h
  set visibility_change = jsonb_build_object('document_id', f.document_id, 'order', f.ord, 'chunks', f.chunks, 'previous', f.previous)
  from flipped f where h.generation = $1 and h.stage = $6 and h.event_id = f.event_id
), signed as (
  select document_id, ord, 1 as sign from flipped union all select document_id, previous, -1 from flipped where previous is not null
), {insert_lexical_deltas}
select document_id, ord, chunks, previous, follows, event_id from flipped

-- name: insert_lexical_deltas
-- Included CTEs: add the revisions in `signed` (document_id, ord, sign) to the lexical statistics.
-- Deltas are appended, not updated: workers that update shared counters serialize and deadlock.
corpus as (
  insert into corpus_deltas (generation, tenant, cfg, chunks)
  select $1, c.tenant, c.cfg, sum(s.sign)
  from signed s join child_chunks c on c.generation = $1 and c.document_id = s.document_id and c.ord = s.ord
  -- A new revision with as many chunks leaves the count, and writes no row.
  group by c.tenant, c.cfg having sum(s.sign) <> 0
), words as (
  insert into lexical_deltas (generation, tenant, cfg, lexeme, delta)
  select $1, c.tenant, c.cfg, word, sum(s.sign)
  from signed s
  join child_chunks c on c.generation = $1 and c.document_id = s.document_id and c.ord = s.ord
  cross join unnest(tsvector_to_array(c.tsv)) word
  group by c.tenant, c.cfg, word having sum(s.sign) <> 0
  order by c.tenant, c.cfg, word
)

-- name: subtract_lexical_counts
-- Subtract revisions from the lexical statistics.
with signed as (
  select document_id, ord::bigint[] as ord, -1 as sign from unnest($2::uuid[], $3::text[]) k (document_id, ord)
), {insert_lexical_deltas}
select

-- name: compact_words
-- Compact the document frequencies of at most $2 words into one row each, or none if the sum is zero.
with several as (
  select tenant, cfg, lexeme from lexical_deltas where generation = $1
  group by tenant, cfg, lexeme having count(*) > 1
  limit $2
),
taken as (
  delete from lexical_deltas d using several s
  where d.generation = $1 and d.tenant = s.tenant and d.cfg = s.cfg and d.lexeme = s.lexeme
  returning d.tenant, d.cfg, d.lexeme, d.delta
),
folded as (
  insert into lexical_deltas (generation, tenant, cfg, lexeme, delta)
  select $1, tenant, cfg, lexeme, sum(delta) from taken group by tenant, cfg, lexeme having sum(delta) <> 0
)
select count(*)::int from taken

-- name: compact_corpus
-- Compact chunk counts into one row per tenant and text search configuration.
with several as (
  select tenant, cfg from corpus_deltas where generation = $1 group by tenant, cfg having count(*) > 1
),
taken as (
  delete from corpus_deltas d using several s
  where d.generation = $1 and d.tenant = s.tenant and d.cfg = s.cfg
  returning d.tenant, d.cfg, d.chunks
),
folded as (
  insert into corpus_deltas (generation, tenant, cfg, chunks)
  select $1, tenant, cfg, sum(chunks) from taken group by tenant, cfg having sum(chunks) <> 0
)
select count(*)::int from taken

-- name: hide_withdrawn
-- Remove withdrawn revisions from the visible ones.
delete from visible v using unnest($2::uuid[], $3::text[]) k (document_id, ord)
-- Arrays compare element by element, as tuples do in Python.
where v.generation = $1 and v.document_id = k.document_id and v.ord < k.ord::bigint[]

-- name: archive_older_rows
-- Delete rows of revisions older than these, and move the texts of chunks and parents into the history.
with k as (
  select document_id, ord::bigint[] as ord from unnest($2::uuid[], $3::text[]) k (document_id, ord)
), deleted as (
  delete from child_chunks t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord returning t.document_id, t.tenant, t.text
), parents as (
  delete from parent_chunks t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord returning t.document_id, t.tenant, t.text
-- Answers quote texts by hash: the history keeps them after the rows are gone.
), kept as (
  insert into chunk_history (document_id, text_sha256, tenant, text)
  select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text from (select * from deleted union all select * from parents) g order by document_id, hash
  on conflict (document_id, text_sha256) do update set generation = null where chunk_history.generation is not null
){deletes}
select

-- name: delete_older_rows
-- Delete rows of revisions older than these. Part of `archive_older_rows` for each table without a history.
delete from {table} t using unnest($2::uuid[], $3::text[]) k (document_id, ord)
where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord::bigint[]

-- name: archive_texts
-- Copy texts of superseded revisions into the history.
insert into chunk_history (document_id, text_sha256, tenant, text)
select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text
from unnest($1::uuid[], $2::text[], $3::text[]) t (document_id, tenant, text) order by document_id, hash
on conflict (document_id, text_sha256) do update set generation = null where chunk_history.generation is not null

-- name: unchanged_versions
-- For each (tenant $1, generation $2, snapshot version $3), whether no index change was committed since.
-- A transaction that was running or had not begun at the snapshot stays invisible in it, so its commit is a
-- change.
-- Another counter epoch: transaction ids may have been assigned twice since the snapshot.
select split_part(s.standing, ' ', 1) = server.epoch and not exists (
  select from index_changes c
  where c.tenant = s.tenant and c.generation in ('', s.generation)
    -- Implied by the next condition; it lets the index skip older changes.
    and c.xact >= pg_snapshot_xmin(split_part(s.standing, ' ', 2)::pg_snapshot)
    and not pg_visible_in_snapshot(c.xact, split_part(s.standing, ' ', 2)::pg_snapshot)
) as unchanged
from unnest($1::text[], $2::text[], $3::text[]) with ordinality s (tenant, generation, standing, place)
-- Once, not for each version: it reads the server's statistics.
cross join (select xact_counter_epoch() as epoch offset 0) server
order by s.place

-- name: visible_orders_of_generation
-- Visible orders of a generation.
select document_id, ord from visible where generation = $1

-- name: record_index_change
-- Record a change of the index for each of these tenants.
insert into index_changes (generation, tenant) select $1, unnest($2::text[])

-- name: delete_foreign_changes
-- Delete changes with transaction ids that this server has not reached.
delete from index_changes where xact >= pg_snapshot_xmax(pg_current_snapshot())

-- name: delete_index_changes
-- Delete changes below a transaction id.
delete from index_changes where xact < $1::xid8

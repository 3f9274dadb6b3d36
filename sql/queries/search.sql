-- name: snapshot
-- Export this transaction's snapshot, with generation $1 or the live one and its number of visible chunks.
select pg_export_snapshot() as snapshot, xact_counter_epoch() || ' ' || pg_current_snapshot() as snapshot_version, name, config, how, topics, state,
       (select coalesce(sum(chunks), 0)::int from corpus_deltas where generation = generations.name) as chunks
from generations
-- Read in the exported snapshot: a switch during the query changes nothing for it.
where name = coalesce($1::text, (select name from live_generation)) and state <> 'dropped'

-- name: corpus_size
-- Number of visible chunks of a tenant, or of all, from the lexical statistics.
select coalesce(sum(chunks), 0)::int from corpus_deltas where generation = $1 and ($2::text is null or tenant = $2)

-- name: search_scope
-- Visible documents that pass the filters and are readable for $11, with their chunks; at most $12.
-- The limit suffices to decide whether there are few.
select v.document_id, v.chunks
from documents d
join visible v on v.generation = $1 and v.document_id = d.id
-- The language of the text precedes the declared one.
left join revision_texts t on t.generation = $1 and t.document_id = d.id and t.ord = v.ord
where d.tenant = $2 and v.tenant = $2
  and ($3::uuid[] is null or d.id = any ($3))
  and ($4::text[] is null or d.collection = any ($4))
  and ($5::text[] is null or d.tags @> $5)
  and ($6::text[] is null or d.external_id = any ($6))
  and ($7::text[] is null or coalesce(t.language, d.language) = any ($7))
  and ($8::date is null or coalesce(d.document_date, t.document_date, (d.received_at at time zone 'UTC')::date) >= $8)
  and ($9::date is null or coalesce(d.document_date, t.document_date, (d.received_at at time zone 'UTC')::date) <= $9)
  and ($10::jsonb is null or d.metadata @> $10)
  and may_read($11::text[], d.readers) and ($11::text[] is null or may_read(d.id, v.ord, $11))
limit $12

-- name: filter_condition
-- Included condition: document of row `c` passes filters $5 to $11 and is readable for $12, if $4 is set.
(not $4::bool or exists (
  select from documents d
  left join revision_texts t on t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord
  where d.id = c.document_id
    and ($5::text[] is null or d.collection = any ($5))
    and ($6::text[] is null or d.tags @> $6)
    and ($7::text[] is null or d.external_id = any ($7))
    and ($8::text[] is null or coalesce(t.language, d.language) = any ($8))
    and ($9::date is null or coalesce(d.document_date, t.document_date, (d.received_at at time zone 'UTC')::date) >= $9)
    and ($10::date is null or coalesce(d.document_date, t.document_date, (d.received_at at time zone 'UTC')::date) <= $10)
    and ($11::jsonb is null or d.metadata @> $11)
    and may_read($12::text[], d.readers)
    -- A revision has readers of its own, unless an amendment replaced them for all.
    and ($12::text[] is null or 'readers' = any (d.amended) or may_read($12, (
      select r.readers from document_revisions r where r.document_id = c.document_id and r.ord = c.ord
    )))
))

-- name: lexical_terms
-- Lexemes of the query in each text search configuration in use, with their document frequencies.
-- Stop words of the query's own language ($4) are dropped in every configuration, by position.
with configurations as materialized (
  select cfg, sum(chunks) as chunks from corpus_deltas
  where generation = $1 and tenant = $2
  group by cfg having sum(chunks) > 0
),
kept as materialized (
  select array_agg(position) as positions
  from unnest(to_tsvector($4::regconfig, $3)) word cross join unnest(word.positions) position
)
select
  c.cfg::text, c.chunks::int, word.lexeme,
  greatest(0, coalesce((
    select sum(d.delta) from lexical_deltas d
    where d.generation = $1 and d.tenant = $2 and d.cfg = c.cfg and d.lexeme = word.lexeme
  ), 0))::int as df
from configurations c
cross join kept
cross join lateral unnest(to_tsvector(c.cfg, $3)) word
-- A query of stop words only has no positions; it is searched as it is.
where kept.positions is null or word.positions && kept.positions
order by 1, 3

-- name: lexical_hits
-- Visible chunks of configuration $13 that match tsquery $14, best BM25 first.
-- `bm <#> weights` is the negative score. All candidates are scored first; the limit $17, even if null, delays the
-- lookup of visibility and filters to the best of them.
select c.id, c.document_id, -c.distance as score
from (
  select id, document_id, ord, bm <#> $15::text::sparsevec as distance
  from child_chunks
  where generation = $1 and tenant = $2 and cfg = $13::regconfig and tsv @@ $14::text::tsquery
    and ($3::uuid[] is null or document_id = any ($3))
  order by distance, id
  limit $17
) c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
where {filter_condition}
order by c.distance, c.id
limit $16

-- name: semantic_exact
-- Visible chunks by cosine distance to $13, by exact scan.
select c.chunk_id, c.document_id, 1 - c.distance as score, c.background_dense
from (
  select chunk_id, document_id, ord, background_dense, embedding <=> $13 as distance
  from chunk_vectors
  where generation = $1 and tenant = $2 and ($3::uuid[] is null or document_id = any ($3))
  order by distance, chunk_id
  offset 0
) c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
where {filter_condition}
order by c.distance, c.chunk_id
limit $14

-- name: semantic_near
-- Visible chunks by cosine distance to $13, through the HNSW index.
-- The cast to halfvec with a dimension must match the index expression. Iterative scans return relaxed order, so
-- the outer query sorts again.
with near as materialized (
  select c.chunk_id, c.document_id, c.background_dense, (c.embedding::halfvec({dimension})) <=> $13::halfvec({dimension}) as distance
  from chunk_vectors c
  cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
  where c.generation = $1 and c.tenant = $2 and ($3::uuid[] is null or c.document_id = any ($3))
    -- Inside the scan: filtered afterwards, it would return fewer than $14 rows.
    and {filter_condition}
  order by (c.embedding::halfvec({dimension})) <=> $13::halfvec({dimension})
  limit $14
)
select chunk_id, document_id, 1 - distance as score, background_dense from near order by distance, chunk_id

-- name: named_documents
-- Visible documents that have one of the normalized names $13, with their first chunk; at most $14.
-- One index scan per name: for a list of names the planner expects most documents, and scans the table.
-- The words that a text begins with name it only where its title does not say what it is, as a file name or none:
-- "T cells were ..." begins texts about much else.
select names.key, c.document_id, c.id as chunk_id
from unnest($13::text[]) names (key)
cross join lateral (
  select c.id, c.document_id, c.ord from child_chunks c
  where c.generation = $1 and c.tenant = $2 and c.ordinal = 0 and document_names(c.prefix, c.text) @> array[names.key]
    and (
      document_names(c.prefix, '') @> array[names.key]
      or split_part(split_part(c.prefix, E'\n', 1), ' > ', 1) ~* '^$|^\S*[._0-9]\S*$|\.[a-z]{2,4}[0-9]?$'
    )
    and ($3::uuid[] is null or c.document_id = any ($3))
  union all
  -- A title that came with an amendment is in no prefix.
  select c.id, c.document_id, c.ord
  from documents d
  join child_chunks c on c.generation = $1 and c.document_id = d.id and c.ordinal = 0
  where d.tenant = $2 and 'title' = any (d.amended) and name_key(d.title) = names.key
    and ($3::uuid[] is null or d.id = any ($3))
  offset 0
) c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
where {filter_condition}
order by names.key, c.document_id, c.id
limit $14

-- name: link_entities
-- Visible entities with these normalized names ($3), weighted by their share of the name's mentions. If entities of two
-- types were merged, the type is one of them.
select min(type) as type, key, (count(*) / sum(count(*)) over (partition by key))::float8 as weight
from entity_mentions m
join visible v on v.generation = $1 and v.document_id = m.document_id and v.ord = m.ord
where m.generation = $1 and m.tenant = $2 and m.key = any ($3::text[]) and ($4::text[] is null or may_read(m.document_id, m.ord, $4))
group by m.entity_id, key
order by key, count(*) desc, 1

-- name: graph
-- Chunks that mention entities within $21 to $18 visible relations of the seeds, best first.
-- $15 types, $16 keys, $17 weights of the seeds. An entity passes score × relation weight × $20 on, along its $19
-- heaviest relations per direction. The cap bounds hubs: p95 fell from 250 ms to 6 ms at a cap of 25.
with recursive seeds as materialized (
  {linked_seeds}
),
reached (id, hop, score) as (
  select id, 0, score from seeds
  union all
  select next.id, node.hop + 1, node.score * next.weight * $20::float8
  from reached node
  cross join lateral (
    {relations_of_entity}
  ) next
  where node.hop < $18::int
),
entity as materialized (
  select id, sum(score) as score from reached where hop >= $21::int group by id order by 2 desc, 1 limit 200
),
c as (
  {entity_mentions_of_chunks}
)
{best_chunks}

-- name: entity_graph
-- Edges among the 200 entities nearest to the seeds, and to the visible chunks within the filters that mention them.
-- $15 types, $16 keys, $17 weights of the seeds. $18 hops lead along the $19 heaviest relations per direction of an
-- entity, and from $19 chunks that mention it to $19 entities there. At most $13 mentions of an entity and $14 edges
-- to chunks are read, nearest entities first.
with recursive seeds as materialized (
  {linked_seeds}
),
reached (id, hop, score) as (
  select id, 0, score from seeds
  union all
  select next.id, node.hop + 1, node.score * next.weight
  from (
    select id, hop, score
    from (select distinct on (id) id, hop, score from reached where hop < $18::int order by id, score desc) one
    order by score desc, id limit 200
  ) node
  cross join lateral (
    {relations_of_entity}
    union all
    (select m.entity_id, (count(distinct m.chunk_id) / $19::float8)::real
     from (
       select c.chunk_id, c.document_id, c.ord
       from (
         select distinct chunk_id, document_id, ord
         from (
           select chunk_id, document_id, ord from entity_mentions
           where generation = $1 and tenant = $2 and entity_id = node.id and ($3::uuid[] is null or document_id = any ($3))
           limit $13
         ) m
         order by chunk_id
       ) c
       cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
       where {filter_condition}
       order by c.chunk_id limit $19
     ) c
     join entity_mentions m on m.generation = $1 and m.tenant = $2 and m.chunk_id = c.chunk_id and m.document_id = c.document_id and m.ord = c.ord
     where m.entity_id <> node.id
     group by m.entity_id order by 2 desc, 1 limit $19)
  ) next
),
entity as materialized (
  select id, min(hop) as hop, max(score) as score from reached group by id order by 2, 3 desc, 1 limit 200
),
mention as materialized (
  select entity.id, c.chunk_id, c.document_id, c.mentions
  from entity
  cross join lateral (
    select c.chunk_id, c.document_id, count(*) as mentions
    from (
      select chunk_id, document_id, ord from entity_mentions
      where generation = $1 and tenant = $2 and entity_id = entity.id and ($3::uuid[] is null or document_id = any ($3))
      limit $13
    ) c
    cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
    where {filter_condition}
    group by 1, 2
  ) c
  order by entity.hop, entity.score desc, entity.id, c.chunk_id limit $14
),
relation as materialized (
  select least(node.id, next.id) as id, greatest(node.id, next.id) as related_id, max(next.weight) as weight
  from entity node
  cross join lateral (
    {relations_of_entity}
  ) next
  where next.weight > 0 and next.id <> node.id and next.id in (select id from entity)
  group by 1, 2
)
select 'seed' as kind, id as entity_id, id as node_id, null::uuid as document_id, score as weight from seeds
union all
select 'relation', id, related_id, null, weight from relation
union all
select 'mention', id, chunk_id, document_id, mentions from mention
order by 1, 2, 3

-- name: linked_seeds
-- Included query: the entities of the names in $15, $16 and $17, with their weights.
select m.entity_id as id, max(seed.weight) as score
from unnest($15::text[], $16::text[], $17::float8[]) seed (type, key, weight)
cross join lateral (
  select entity_id from entity_mentions
  where generation = $1 and tenant = $2 and key = seed.key and type = seed.type
  -- One mention gives the id: type, key and tenant as they are written determine it, whatever was corrected.
  limit 1
) m
group by 1

-- name: relations_of_entity
-- Included query: the $19 heaviest visible relations per direction of entity `node` to others.
(select r.object_id as id, r.weight from relations r
 cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
 where ($12::text[] is null or may_read(r.document_id, r.ord, $12)) and r.generation = $1 and r.tenant = $2 and r.subject_id = node.id and r.object_id <> node.id
 order by r.weight desc, r.object_id limit $19)
union all
(select r.subject_id, r.weight from relations r
 cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
 where ($12::text[] is null or may_read(r.document_id, r.ord, $12)) and r.generation = $1 and r.tenant = $2 and r.object_id = node.id and r.subject_id <> node.id
 order by r.weight desc, r.subject_id limit $19)

-- name: resolve_seeds
-- The entity of each name ($3 types, $4 keys), in order, and its own normalized name: that of the entity that it was
-- merged into.
select m.entity_id, coalesce((
    select own.key from entity_mentions own
    where m.written_id is not null and own.generation = $1 and own.tenant = $2 and own.entity_id = m.entity_id and own.written_id is null
    limit 1
  ), seed.key) as key
from unnest($3::text[], $4::text[]) with ordinality seed (type, key, place)
cross join lateral (
  select entity_id, written_id from entity_mentions
  where generation = $1 and tenant = $2 and key = seed.key and type = seed.type
  limit 1
) m
order by seed.place

-- name: graph_nodes
-- Visible chunks that mention the entities $15 with scores $16, and the chunks $17 with scores $18, best first. At
-- most $13 mentions of each entity are read.
with entity as materialized (
  select id, score from unnest($15::uuid[], $16::float8[]) reached (id, score) order by score desc, id limit 200
),
c as (
  {entity_mentions_of_chunks}
  union all
  select c.id, c.document_id, c.ord, null, found.score
  from unnest($17::uuid[], $18::float8[]) found (id, score)
  join child_chunks c on c.generation = $1 and c.tenant = $2 and c.id = found.id and ($3::uuid[] is null or c.document_id = any ($3))
  join visible v on v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord
)
{best_chunks}

-- name: entity_mentions_of_chunks
-- Included query: visible chunks that mention the entities of `entity`, with their scores. At most $13 mentions of each.
-- A name that occurs ten times in a chunk counts once.
select distinct m.chunk_id, m.document_id, m.ord, entity.id, entity.score
from entity
cross join lateral (
  select chunk_id, document_id, ord from entity_mentions
  where generation = $1 and tenant = $2 and entity_id = entity.id and ($3::uuid[] is null or document_id = any ($3))
  limit $13
) m
join visible v on v.generation = $1 and v.document_id = m.document_id and v.ord = m.ord

-- name: best_chunks
-- Included query: chunks of `c` within the filters, by the sum of their scores, the $14 best.
select c.chunk_id, min(c.document_id::text)::uuid as document_id, sum(c.score) as score
from c
where {filter_condition}
group by c.chunk_id
order by 3 desc, 1
limit $14

-- name: graph_evidence
-- Relations up to $15 hops off the seeds ($13 types, $14 keys), and claims about the seeds in the chunks found ($18),
-- with the places of their names: relations between two seeds first, then those over one entity between two. From a
-- seed, the $17 heaviest relations per direction are read; of its $16 best neighbors, $20. At most $19 of each kind.
-- It takes a quarter of the time of `graph`, on 4,000 chunks with hubs of 2,000 mentions.
with seeds as materialized (
  select distinct m.entity_id as id, seed.key
  from unnest($13::text[], $14::text[]) seed (type, key)
  cross join lateral (
    select entity_id from entity_mentions
    where generation = $1 and tenant = $2 and key = seed.key and type = seed.type
    limit 1
  ) m
),
first as materialized (
  select seeds.key, r.*
  from seeds
  cross join lateral (
    (select r.*, r.object_id as next_id from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where {readable_relation} and r.subject_id = seeds.id
     order by r.weight desc, r.object_id limit $17)
    union all
    (select r.*, r.subject_id from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where {readable_relation} and r.object_id = seeds.id
     order by r.weight desc, r.subject_id limit $17)
    union all
    -- Between two seeds that may be hubs, whatever its weight.
    (select r.*, r.object_id from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where {readable_relation} and r.subject_id = seeds.id and r.object_id in (select id from seeds)
     order by r.weight desc, r.object_id limit $17)
  ) r
),
near as materialized (
  select next_id as id, count(distinct key) as keys, max(weight) as weight
  from first where next_id not in (select id from seeds)
  group by next_id
),
second as materialized (
  select r.*
  from (select id from near order by keys desc, weight desc, id limit $16) near
  cross join lateral (
    (select r.* from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where {readable_relation} and r.subject_id = near.id
     order by r.weight desc, r.object_id limit $20)
    union all
    (select r.* from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where {readable_relation} and r.object_id = near.id
     order by r.weight desc, r.subject_id limit $20)
  ) r
  where $15::int >= 2
),
relation as materialized (
  select distinct on (subject_id, type, object_id) *
  from (
    select 1 as hop, coalesce(near.keys, 0) as keys, document_id, ord, chunk_id, subject_id, type, object_id, first.weight, char_start, char_end
    from first left join near on near.id = first.next_id
    union all
    select 2, 0, document_id, ord, chunk_id, subject_id, type, object_id, weight, char_start, char_end from second
  ) c
  where {filter_condition}
  order by subject_id, type, object_id, hop, chunk_id = any ($18::uuid[]) desc, weight desc, document_id, char_start
),
stated as materialized (
  (select 'relation' as kind, r.*,
     1000 * (r.subject_id in (select id from seeds) and r.object_id in (select id from seeds))::int + r.keys as links
   from relation r
   order by links desc, r.hop, r.chunk_id = any ($18) desc, r.weight desc, r.subject_id, r.type, r.object_id limit $19)
  union all
  (select 'claim', 0, 0, c.document_id, c.ord, c.chunk_id, c.subject_id, c.property, null, 1, c.char_start, c.char_end, 0
   from claims c
   join visible v on v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord
   where c.generation = $1 and c.tenant = $2 and c.subject_id in (select id from seeds) and c.chunk_id = any ($18)
     and ($3::uuid[] is null or c.document_id = any ($3)) and ($12::text[] is null or may_read(c.document_id, c.ord, $12)) and {filter_condition}
   order by array_position($18, c.chunk_id), c.char_start, c.property limit $19)
)
select s.kind, s.hop, s.type as predicate, s.weight::float8 as weight, s.subject_id, s.object_id,
  (select min(key) from seeds where id = s.subject_id) as subject_key, (select min(key) from seeds where id = s.object_id) as object_key,
  subject.char_start as subject_start, subject.char_end as subject_end,
  coalesce(object.char_start, s.char_start) as object_start, coalesce(object.char_end, s.char_end) as object_end,
  s.document_id, c.parent_id, s.chunk_id, s.char_start, s.char_end
from stated s
join child_chunks c on c.generation = $1 and c.document_id = s.document_id and c.ord = s.ord and c.id = s.chunk_id
cross join lateral (
  select m.char_start, m.char_end from entity_mentions m
  where m.generation = $1 and m.document_id = s.document_id and m.ord = s.ord and m.chunk_id = s.chunk_id and m.entity_id = s.subject_id
  order by m.char_start >= s.char_start and m.char_end <= s.char_end desc, abs(m.char_start - s.char_start), m.char_start limit 1
) subject
left join lateral (
  select m.char_start, m.char_end from entity_mentions m
  where m.generation = $1 and m.document_id = s.document_id and m.ord = s.ord and m.chunk_id = s.chunk_id and m.entity_id = s.object_id
  order by m.char_start >= s.char_start and m.char_end <= s.char_end desc, abs(m.char_start - s.char_start), m.char_start limit 1
) object on true
where s.kind = 'claim' or object.char_start is not null
order by s.kind desc, s.links desc, s.hop, s.chunk_id = any ($18) desc, s.weight desc, s.subject_id, s.type, s.object_id, s.document_id, s.char_start

-- name: readable_relation
-- Included condition: relation `r` is of the tenant, between two entities (they may have been merged), of listed
-- documents, and readable for $12.
r.generation = $1 and r.tenant = $2 and r.subject_id <> r.object_id and ($3::uuid[] is null or r.document_id = any ($3)) and ($12::text[] is null or may_read(r.document_id, r.ord, $12))

-- name: chunks
-- Visible child chunks by id ($2) or parent ($3), with the fields of a hit, a rerank or a citation.
-- `words` has the positions of the lexemes of question $5 alone: a whole tsvector takes longer to print than the
-- rest of the row to read. `offset 0` keeps the planner from reordering six joins, which takes longer than the query.
with question as materialized (
  select cfg, tsvector_to_array(to_tsvector(cfg, $5::text)) as lexemes from corpus_deltas where generation = $1 group by cfg
)
select
  c.id, c.parent_id, c.document_id, c.ord, c.kind, c.text, c.prefix, c.char_start, c.char_end, c.spans, c.ordinal, c.language, ts_filter(setweight(c.tsv, 'A', q.lexemes), array['A']::"char"[])::text as words,
  d.external_id, d.source_uri, coalesce(r.revision, d.revision, 0) as revision,
  case when d.latest = c.ord or 'title' = any (d.amended) then coalesce(d.title, t.title, d.filename) else coalesce(t.title, r.title, r.filename, d.title) end as title,
  s.blob_key, s.blob_offset, s.blob_length
from child_chunks c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
left join question q on q.cfg = c.cfg
left join lateral (select * from documents d where d.id = c.document_id offset 0) d on true
left join lateral (select * from document_revisions r where r.document_id = c.document_id and r.ord = c.ord offset 0) r on true
left join lateral (select t.title from revision_texts t where t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord offset 0) t on true
left join lateral (
  select s.blob_key, s.blob_offset, s.blob_length from chunk_states s
  where s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord and s.chunk_id = c.id offset 0
) s on true
where c.generation = $1 and ($4::text[] is null or may_read(c.document_id, c.ord, $4)) and ($2::uuid[] is null or c.id = any ($2)) and ($3::uuid[] is null or c.parent_id = any ($3))
order by array_position($3::uuid[], c.parent_id), c.ordinal, c.id

-- name: child_states
-- Where the token states of the visible children of parents $2 are, with their background scores.
select c.id, c.parent_id, s.blob_key, s.blob_offset, s.blob_length, b.background_maxsim
from child_chunks c
cross join lateral (select from visible v where v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord offset 0) v
left join lateral (
  select s.blob_key, s.blob_offset, s.blob_length from chunk_states s
  where s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord and s.chunk_id = c.id offset 0
) s on true
left join lateral (
  select b.background_maxsim from chunk_vectors b
  where b.generation = $1 and b.document_id = c.document_id and b.ord = c.ord and b.chunk_id = c.id offset 0
) b on true
where c.generation = $1 and c.parent_id = any ($2::uuid[]) and ($3::text[] is null or may_read(c.document_id, c.ord, $3))
order by array_position($2::uuid[], c.parent_id), c.ordinal, c.id

-- name: ranking_facts
-- Date and labels of the documents of visible chunks $3, the seeds ($5 types, $6 keys) that each chunk mentions, its
-- distance from them along visible relations ($7 hops, $8 heaviest per direction), and the relations that it states.
with recursive seeds as materialized (
  select distinct m.entity_id as id, seed.key
  from unnest($5::text[], $6::text[]) seed (type, key)
  cross join lateral (
    select entity_id from entity_mentions
    where generation = $1 and tenant = $2 and key = seed.key and type = seed.type
    limit 1
  ) m
),
-- `union` drops repeats of an entity at a distance, so hubs end the recursion early.
reached (id, hop) as (
  select id, 0 from seeds
  union
  select next.id, reached.hop + 1
  from reached
  cross join lateral (
    (select r.object_id as id from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where ($4::text[] is null or may_read(r.document_id, r.ord, $4)) and r.generation = $1 and r.tenant = $2 and r.subject_id = reached.id
     order by r.weight desc, r.object_id limit $8)
    union all
    (select r.subject_id from relations r
     cross join lateral (select from visible v where v.generation = $1 and v.document_id = r.document_id and v.ord = r.ord offset 0) v
     where ($4::text[] is null or may_read(r.document_id, r.ord, $4)) and r.generation = $1 and r.tenant = $2 and r.object_id = reached.id
     order by r.weight desc, r.subject_id limit $8)
  ) next
  where reached.hop < $7::int
),
nearest as materialized (select id, min(hop) as hop from reached group by id)
select c.id as chunk_id, coalesce(d.document_date, t.document_date, (d.received_at at time zone 'UTC')::date) as document_date, d.collection, d.tags, d.metadata,
  array(
    select distinct s.key from entity_mentions m join seeds s on s.id = m.entity_id where m.generation = $1 and m.chunk_id = c.id
  ) as seed_keys,
  (select min(n.hop) from entity_mentions m join nearest n on n.id = m.entity_id where m.generation = $1 and m.chunk_id = c.id) as hop,
  array(
    select distinct r.type from relations r
    where r.generation = $1 and r.document_id = c.document_id and r.ord = c.ord and r.chunk_id = c.id
      and (r.subject_id in (select id from seeds) or r.object_id in (select id from seeds))
  ) as relation_types
from child_chunks c
join visible v on v.generation = $1 and v.tenant = $2 and v.document_id = c.document_id and v.ord = c.ord
join documents d on d.id = c.document_id
left join revision_texts t on t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord
where c.generation = $1 and c.id = any ($3::uuid[]) and ($4::text[] is null or may_read(c.document_id, c.ord, $4))

-- name: parents
-- Visible parent chunks by id.
select p.id as parent_id, p.document_id, p.text, p.section, p.char_start, p.char_end, p.pages, p.tokens, p.ordinal,
  array(select distinct w ->> 'code' from jsonb_array_elements(t.warnings) w order by 1) as warning_codes
from parent_chunks p
join visible v on v.generation = $1 and v.document_id = p.document_id and v.ord = p.ord
left join revision_texts t on t.generation = $1 and t.document_id = p.document_id and t.ord = p.ord
where p.generation = $1 and p.id = any ($2::uuid[]) and ($3::text[] is null or may_read(p.document_id, p.ord, $3))

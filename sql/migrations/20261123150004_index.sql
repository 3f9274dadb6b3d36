-- The index: projections partitioned by generation; row keys are (generation, ord, content id). Secondary indexes
-- are built per partition (sql/partitions.py), so that a generation that is being loaded has only primary
-- keys.
set local search_path = anabranch, extensions, public;

-- Parsed text of each revision.
create table revision_texts (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  title text,
  language text,
  media_type text not null,
  content_sha256 text not null,
  text_sha256 text not null,
  characters int not null,
  pages int,
  markdown text,
  blob jsonb,
  warnings jsonb not null,
  how text,
  event_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (generation, document_id, ord)
) partition by list (generation);

-- Parent chunks: the passages that answers are written from.
create table parent_chunks (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  ordinal int not null,
  text text not null,
  section text not null,
  char_start int not null,
  char_end int not null,
  pages int[] not null,
  tokens int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- A stable 29-bit id of a term, starting at 1. md5 is the same in every Postgres version; hashtext is not
-- guaranteed to be.
create function lexical_term_id(term text) returns int language sql immutable strict parallel safe as
$$ select ('x' || left(md5(term), 8))::bit(29)::int + 1 $$;

-- Exact BM25 with no extension but pgvector. A chunk's term weights are a sparse vector, so its product with
-- the query's idf vector is the score (Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25
-- and Beyond, 2009): tf * (k1 + 1) / (tf + k1 * (1 - b + b * dl / avgdl)), in thousandths.
-- Terms with the same id are treated as one.
create function lexical_weights(words tsvector, k1 float8, b float8, avgdl float8) returns extensions.sparsevec language plpgsql immutable strict parallel safe as $$
declare
  norm float8 := k1 * (1 - b + b * (select sum(cardinality(positions)) from unnest(words)) / avgdl);
begin
  return (
    select '{' || coalesce(string_agg(id || ':' || (tf * 1000 * (k1 + 1) / (tf + norm))::int || 'e-3', ','), '') || '}/1000000000'
    from (select anabranch.lexical_term_id(lexeme) as id, sum(cardinality(positions)) as tf from unnest(words) group by 1) terms
  )::extensions.sparsevec;
end $$;

-- Child chunks: what the channels search. `cfg` is the text search configuration of the document's language; `tsv`
-- and `bm` derive from title, headings and text. `create_partitions` replaces the expression of `bm` by one
-- with the constants of the generation. The average length is one of them: an average over the corpus would make
-- rows depend on arrival order.
create table child_chunks (
  generation text not null,
  id uuid not null,
  parent_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  ordinal int not null,
  kind text not null,
  text text not null,
  prefix text not null,
  char_start int not null,
  char_end int not null,
  spans jsonb not null,
  tokens int not null,
  language text,
  cfg regconfig not null,
  tsv tsvector generated always as (to_tsvector(cfg, prefix || ' ' || text)) stored,
  bm extensions.sparsevec generated always as (lexical_weights(to_tsvector(cfg, prefix || ' ' || text), 1.2, 0.75, 100)) stored,
  primary key (generation, document_id, ord, id)
) partition by list (generation);
-- `main` keeps the vector in the row, since it is read for every candidate.
alter table child_chunks alter column bm set storage main;

-- Embeddings of child chunks.
create table chunk_vectors (
  generation text not null,
  chunk_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  embedding halfvec not null,
  background_dense real,
  background_maxsim real,
  primary key (generation, document_id, ord, chunk_id)
) partition by list (generation);
alter table chunk_vectors alter column embedding set storage plain;

-- Where the token states of child chunks are stored.
create table chunk_states (
  generation text not null,
  chunk_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  blob_key text not null,
  blob_offset int not null,
  blob_length int not null,
  primary key (generation, document_id, ord, chunk_id)
) partition by list (generation);

-- Token state blobs of dropped generations, deleted in the background unless another generation refers to
-- them.
create table dropped_states (
  blob_key text primary key,
  document_id uuid not null
);

-- Where a text mentions an entity.
create table entity_mentions (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  entity_id uuid not null,
  type text not null,
  key text not null,
  name text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- Relations between two entities, as a text states them.
create table relations (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  subject_id uuid not null,
  type text not null,
  object_id uuid not null,
  weight real not null,
  extractor text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- Properties of entities, as a text states them.
create table claims (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  subject_id uuid not null,
  property text not null,
  value text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- One row per part that arrived. A revision is complete when all chunk and vector parts exist.
create table revision_parts (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  kind text not null check (kind in ('chunks', 'vectors', 'entities')),
  part int not null,
  parts int not null,
  tenant text not null,
  event_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (generation, document_id, ord, kind, part)
) partition by list (generation);

-- The pointer that makes a revision searchable; it only moves forward. A pointer, because moving one row
-- takes 1 ms, while a flag on 1,000 vector rows takes 2 s.
create table visible (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunks int not null,
  primary key (generation, document_id)
) partition by list (generation);

-- Document frequencies as signed deltas: readers sum them, a compactor folds them. Appending scales with
-- workers; updated counters serialize them.
create table lexical_deltas (
  generation text not null,
  tenant text not null,
  cfg regconfig not null,
  lexeme text not null,
  delta int not null
) partition by list (generation);

-- Chunk counts, as signed deltas as well.
create table corpus_deltas (
  generation text not null,
  tenant text not null,
  cfg regconfig not null,
  chunks int not null
) partition by list (generation);

-- An entity is derived from its visible mentions; its name is the most frequent spelling, then the smallest. The
-- view checks the caller's rights, not the owner's.
create view entities with (security_invoker = true) as
select
  generation, tenant, entity_id as id, min(type) as type, min(key) as key,
  (array_agg(name order by mentions desc, name collate "C"))[1] as name,
  array_agg(name order by mentions desc, name collate "C") as names,
  sum(mentions)::int as mentions
from (
  select m.generation, m.tenant, m.entity_id, m.type, m.key, m.name, count(*) as mentions
  from entity_mentions m join visible v on v.generation = m.generation and v.document_id = m.document_id and v.ord = m.ord
  group by 1, 2, 3, 4, 5, 6
) spelled
group by generation, tenant, entity_id;

-- Transactions that changed what queries see, so that stale cached answers are detected. Every transaction
-- that changes an index inserts a row; rows are deleted after an hour.
create table index_changes (
  xact xid8 not null default pg_current_xact_id(),
  tenant text not null,
  generation text not null -- '': all generations
);
create index index_changes_of_tenant on index_changes (tenant, xact);
create index index_changes_by_xact on index_changes (xact);

-- Transaction ids restart in another database, and a server that crashed or was restored may assign some of
-- them twice. A server that recovers from a killed backend keeps its start time, but assigns unwritten
-- transaction ids again. It resets its statistics then, and reports when.
create function xact_counter_epoch() returns text language sql stable
set search_path = anabranch, extensions, public
as $$
  select (select oid from pg_database where datname = current_database()) || '/' || 'index_changes'::regclass::oid || '/' || extract(epoch from pg_postmaster_start_time())
    || '/' || coalesce((select extract(epoch from stats_reset) from pg_stat_archiver), 0)
$$;

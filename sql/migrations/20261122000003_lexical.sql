-- Exact BM25 with no extension but pgvector. A chunk's term weights are a sparse vector, so its product with
-- the query's idf vector is the score (Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25
-- and Beyond, 2009).
set local search_path = anabranch, extensions, public;

-- A stable 29-bit id of a term, starting at 1. md5 is the same in every Postgres version; hashtext is not
-- guaranteed to be.
create function lexical_term_id(term text) returns int language sql immutable strict parallel safe as
$$ select ('x' || left(md5(term), 8))::bit(29)::int + 1 $$;

-- tf * (k1 + 1) / (tf + k1 * (1 - b + b * dl / avgdl)) with k1 1.2 and b 0.75, in thousandths. Terms with the
-- same id are treated as one.
create function lexical_weights(words tsvector, avgdl real) returns extensions.sparsevec language plpgsql immutable strict parallel safe as $$
declare
  norm float8 := 0.3 + 0.9 * (select sum(cardinality(positions)) from unnest(words)) / avgdl;
begin
  return (
    select '{' || coalesce(string_agg(id || ':' || (tf * 2200 / (tf + norm))::int || 'e-3', ','), '') || '}/1000000000'
    from (select anabranch.lexical_term_id(lexeme) as id, sum(cardinality(positions)) as tf from unnest(words) group by 1) terms
  )::extensions.sparsevec;
end $$;

-- The average length is a constant of 100 lexemes: an average over the corpus would make rows depend on
-- arrival order.
alter table child_chunks
  add column tsv tsvector generated always as (to_tsvector(cfg, prefix || ' ' || text)) stored,
  add column bm extensions.sparsevec generated always as (lexical_weights(to_tsvector(cfg, prefix || ' ' || text), 100)) stored;
-- `main` keeps the vector in the row, since it is read for every candidate.
alter table child_chunks alter column bm set storage main;

-- fastupdate = off: with a pending list every query has to scan the list.
create index child_chunks_by_word on child_chunks using gin (tsv) with (fastupdate = off);
create index child_chunks_by_id on child_chunks (id);
create index child_chunks_by_parent on child_chunks (parent_id);
create index parent_chunks_by_id on parent_chunks (id);

create index lexical_deltas_by_word on lexical_deltas (tenant, cfg, lexeme) include (delta);
create index corpus_deltas_by_tenant on corpus_deltas (tenant, cfg) include (chunks);

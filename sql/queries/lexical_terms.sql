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
where kept.positions is null or word.positions && kept.positions
order by 1, 3

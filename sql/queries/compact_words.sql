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

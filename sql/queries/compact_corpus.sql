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

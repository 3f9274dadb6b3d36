-- Number of words and configurations whose statistics differ from the visible chunks.
with told as (
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
from (select * from told where n <> 0) t
full join counted c on c.generation = t.generation and c.tenant = t.tenant and c.cfg = t.cfg and c.lexeme is not distinct from t.lexeme
where t.n is distinct from c.n

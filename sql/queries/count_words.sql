-- Signed document frequencies of revisions that come ($4 = 1) or go (-1), one row a word, in the words' order.
with k as (
  select document_id, ord::bigint[] as ord, sign from unnest($2::uuid[], $3::text[], $4::int[]) k (document_id, ord, sign)
), counted as (
  insert into corpus_deltas (generation, tenant, cfg, chunks)
  select $1, c.tenant, c.cfg, sum(k.sign)
  from k join child_chunks c on c.generation = $1 and c.document_id = k.document_id and c.ord = k.ord
  group by c.tenant, c.cfg having sum(k.sign) <> 0
)
insert into lexical_deltas (generation, tenant, cfg, lexeme, delta)
select $1, c.tenant, c.cfg, word, sum(k.sign)
from k
join child_chunks c on c.generation = $1 and c.document_id = k.document_id and c.ord = k.ord
cross join unnest(tsvector_to_array(c.tsv)) word
group by c.tenant, c.cfg, word having sum(k.sign) <> 0
order by c.tenant, c.cfg, word

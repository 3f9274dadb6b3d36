-- Included CTEs: add the revisions in `signed` (document_id, ord, sign) to the lexical statistics.
-- Deltas are appended, not updated: workers that update shared counters serialize and deadlock.
corpus as (
  insert into corpus_deltas (generation, tenant, cfg, chunks)
  select $1, c.tenant, c.cfg, sum(s.sign)
  from signed s join child_chunks c on c.generation = $1 and c.document_id = s.document_id and c.ord = s.ord
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

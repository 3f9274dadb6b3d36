-- Included query: view `entities` of a generation and tenant $1, over mentions readable for $3.
select entity_id as id, min(type) as type, min(key) as key,
  (array_agg(name order by mentions desc, name collate "C"))[1] as name, array_agg(name order by mentions desc, name collate "C") as names,
  sum(mentions)::int as mentions
from (
  select m.entity_id, m.type, m.key, m.name, count(*) as mentions
  from entity_mentions m join visible v on v.generation = m.generation and v.document_id = m.document_id and v.ord = m.ord
  where m.generation = g.name and m.tenant = $1 and may_read(m.document_id, m.ord, $3::text[])
  group by 1, 2, 3, 4
) spelled
group by entity_id

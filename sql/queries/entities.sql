-- name: entities
-- Visible entities of the live generation, most mentioned first, by id ($2), part of a name ($4) or type ($5).
-- $3 are the caller's reader names.
select e.id, e.type, e.name, e.names, e.mentions
from live_generation g
cross join lateral (
  select id, type, name, names, mentions from entities where $3::text[] is null and generation = g.name and tenant = $1 and ($2::uuid is null or id = $2)
  union all
  select id, type, name, names, mentions from ({readable_entities}) readable where $3::text[] is not null and ($2::uuid is null or id = $2)
) e
where ($4::text is null or exists (select from unnest(e.names) spelled where strpos(lower(spelled), lower($4)) > 0))
  and ($5::text is null or e.type = $5)
  and ($6::int is null or (-e.mentions, e.id) > (-$6::int, $7::uuid))
order by e.mentions desc, e.id
limit $8

-- name: entities_by_id
-- Visible entities by id, for the caller's reader names ($3).
select e.id, e.type, e.name, e.mentions
from live_generation g
cross join lateral (
  select id, type, name, mentions from entities where $3::text[] is null and generation = g.name and tenant = $1 and id = any ($2::uuid[])
  union all
  select id, type, name, mentions from ({readable_entities}) readable where $3::text[] is not null and id = any ($2::uuid[])
) e

-- name: readable_entities
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

-- name: entity_mentions
-- Mentions of an entity.
select m.document_id, d.external_id, coalesce(d.title, d.filename) as title, m.chunk_id, m.name, m.char_start, m.char_end
from live_generation g
join entity_mentions m on m.generation = g.name and m.tenant = $1 and m.entity_id = $2
join visible v on v.generation = g.name and v.document_id = m.document_id and v.ord = m.ord
left join documents d on d.id = m.document_id
where $4::text[] is null or may_read(m.document_id, m.ord, $4)
order by m.document_id, m.char_start, m.id
limit $3

-- name: entity_relations
-- Visible relations of these entities ($2), heaviest first, one per pair and type.
select r.subject_id, r.type, r.object_id, max(r.weight) as weight, count(distinct r.document_id)::int as documents, (array_agg(r.chunk_id order by r.weight desc, r.chunk_id))[1] as chunk_id
from live_generation g
join relations r on r.generation = g.name and r.tenant = $1 and (r.subject_id = any ($2::uuid[]) or r.object_id = any ($2::uuid[]))
join visible v on v.generation = g.name and v.document_id = r.document_id and v.ord = r.ord
where $4::text[] is null or may_read(r.document_id, r.ord, $4)
group by 1, 2, 3
order by 4 desc, 5 desc, 1, 2, 3
limit $3

-- name: entity_claims
-- Claims of an entity: amounts, dates, identifiers.
select c.property, c.value, c.document_id, c.chunk_id, c.char_start, c.char_end
from live_generation g
join claims c on c.generation = g.name and c.tenant = $1 and c.subject_id = $2
join visible v on v.generation = g.name and v.document_id = c.document_id and v.ord = c.ord
where $4::text[] is null or may_read(c.document_id, c.ord, $4)
order by c.property, c.value, c.document_id, c.char_start
limit $3

-- name: entities
-- Visible entities of the live generation, in a `PageOrder` after the row of $6 and $7, by id ($2), part of a name or alias ($4), type ($5) or a whole name or alias ($9).
-- $3 are the caller's reader names. The id of a merged entity leads to the one that it is part of.
select e.id, e.type, e.name, e.names, e.mentions, coalesce(aliases.added, '{}') as added_aliases, {sort_key} as sort_value
from live_generation g
cross join lateral (
  select id, type, name, names, mentions from entities where $3::text[] is null and generation = g.name and tenant = $1 and ($2::uuid is null or id = {current_entity})
  union all
  select id, type, name, names, mentions from ({readable_entities}) readable where $3::text[] is not null and ($2::uuid is null or id = {current_entity})
) e
left join lateral (
  select array_agg(a.alias order by a.alias) as added from current_aliases a where a.tenant = $1 and a.entity_id = e.id and not a.is_removed
) aliases on true
where ($4::text is null or exists (select from unnest(e.names || aliases.added) spelled where strpos(lower(spelled), lower($4)) > 0))
  and ($5::text is null or e.type = $5)
  and ($9::text is null or exists (select from unnest(e.names || aliases.added) spelled where lower(spelled) = lower($9)))
  and ($6::{sort_type} is null or ({sort_key}, e.id) {beyond} ($6, $7::uuid))
order by {sort_key} {direction}, e.id {direction}
limit $8

-- name: current_entity
-- Included expression: entity $2, or the one that it was merged into.
coalesce((select c.root_id from entity_corrections c where c.tenant = $1 and c.entity_id = $2), $2)

-- name: merged_ids
-- Those of entities $2 that were merged, with the entity that each is part of.
select entity_id, root_id from entity_corrections where tenant = $1 and entity_id = any ($2::uuid[]) and root_id <> entity_id

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
select entity_id as id, (array_agg(type order by is_own desc, mentions desc, type))[1] as type,
  (array_agg(name order by is_own desc, mentions desc, name collate "C"))[1] as name, array_agg(name order by is_own desc, mentions desc, name collate "C") as names,
  sum(mentions)::int as mentions
from (
  select m.entity_id, coalesce(m.entity_type, m.type) as type, m.name, m.written_id is null as is_own, count(*) as mentions
  from entity_mentions m join visible v on v.generation = m.generation and v.document_id = m.document_id and v.ord = m.ord
  where m.generation = g.name and m.tenant = $1 and may_read(m.document_id, m.ord, $3::text[])
  group by 1, 2, 3, 4
) spelled
group by entity_id

-- name: entity_parts
-- The entities that documents write of which entity $2 consists, itself first.
select id, type, names[1] as name, names[2:] as aliases, mentions
from (
  select id, min(type) as type, array_agg(name order by mentions desc, name collate "C") as names, sum(mentions)::int as mentions
  from (
    select coalesce(m.written_id, m.entity_id) as id, m.type, m.name, count(*) as mentions
    from live_generation g
    join entity_mentions m on m.generation = g.name and m.tenant = $1 and m.entity_id = $2
    join visible v on v.generation = g.name and v.document_id = m.document_id and v.ord = m.ord
    where $4::text[] is null or may_read(m.document_id, m.ord, $4)
    group by 1, 2, 3
  ) spelled
  group by id
) part
order by id <> $2, mentions desc, id
limit $3

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
-- Not those between two entities that were merged.
where r.subject_id <> r.object_id and ($4::text[] is null or may_read(r.document_id, r.ord, $4))
group by 1, 2, 3
order by 4 desc, 5 desc, 1, 2, 3
limit $3

-- name: entity_claims
-- Claims of an entity: amounts, dates, identifiers. Aliases are not among them.
select c.property, c.value, c.document_id, c.chunk_id, c.char_start, c.char_end
from live_generation g
join claims c on c.generation = g.name and c.tenant = $1 and c.subject_id = $2
join visible v on v.generation = g.name and v.document_id = c.document_id and v.ord = c.ord
where c.property not in ('abbreviation', 'defined_term') and ($4::text[] is null or may_read(c.document_id, c.ord, $4))
order by c.property, c.value, c.document_id, c.char_start
limit $3

-- name: entity_found_aliases
-- Aliases of an entity that visible documents state and that people have not decided about.
select c.value as alias, c.property as kind, c.document_id, c.chunk_id, c.char_start, c.char_end
from live_generation g
join claims c on c.generation = g.name and c.tenant = $1 and c.subject_id = $2
join visible v on v.generation = g.name and v.document_id = c.document_id and v.ord = c.ord
where c.property in ('abbreviation', 'defined_term') and not {is_decided_alias} and ($4::text[] is null or may_read(c.document_id, c.ord, $4))
order by c.value, c.document_id, c.char_start
limit $3

-- name: is_decided_alias
-- Included expression: people gave the alias of claim c to an entity, or took it from the one that c is about.
exists (
  select from current_aliases p
  where p.tenant = c.tenant and p.key = name_key(c.value) and (p.entity_id = c.subject_id or not p.is_removed)
)

-- name: upsert_entity_alias
-- Store an alias, or its removal, that was decided at offset $5 of topic `control`, unless a later decision is stored.
insert into entity_aliases as a (tenant, entity_id, alias, is_removed, decided_at) values ($1, $2, $3, $4, $5)
on conflict (tenant, entity_id, key) do update set alias = excluded.alias, is_removed = excluded.is_removed, decided_at = excluded.decided_at
where a.decided_at <= excluded.decided_at

-- name: retype_entity
-- Store the type of entity $2 ($3, null: as documents state it) by the decision at offset $4 of topic `control`, unless
-- a later one is stored.
insert into entity_corrections as c (tenant, entity_id, root_id, type, typed_at) values ($1, $2, $2, $3, $4)
on conflict (tenant, entity_id) do update set type = excluded.type, typed_at = excluded.typed_at
where c.typed_at < excluded.typed_at

-- name: merge_entity
-- Store that entity $2 is part of entity $3 of type $4 (null: an entity of its own) by the decision at offset $5 of topic
-- `control`, unless a later one is stored. If $3 was part of $2, it is now the whole.
with recursive above (id) as (
  select $3::uuid
  union
  select c.parent_id from above join entity_corrections c on c.tenant = $1 and c.entity_id = above.id and c.parent_id is not null
), turned as (
  update entity_corrections c set parent_id = null, parent_type = null, merged_at = $5
  where c.tenant = $1 and c.entity_id = $3 and $2 in (select id from above)
    and not exists (select from entity_corrections p where p.tenant = $1 and p.entity_id = $2 and p.merged_at >= $5)
)
insert into entity_corrections as c (tenant, entity_id, root_id, parent_id, parent_type, merged_at) values ($1, $2, $2, $3, $4, $5)
on conflict (tenant, entity_id) do update set parent_id = excluded.parent_id, parent_type = excluded.parent_type, merged_at = excluded.merged_at
where c.merged_at < excluded.merged_at

-- name: lock_for_entity_correction
-- Wait for transactions that insert rows by the corrections so far, see `lock_entity_corrections`.
select pg_advisory_xact_lock(hashtext('entity corrections of ' || $1))

-- name: derive_entity_corrections
-- Derive the entity and the type of each corrected entity of tenant $1. Returns those that change.
with recursive tree (id, root, type) as (
  select c.entity_id, coalesce(c.parent_id, c.entity_id), case when c.parent_id is null then c.type else c.parent_type end
  from entity_corrections c
  where c.tenant = $1 and not exists (select from entity_corrections p where p.tenant = $1 and p.entity_id = c.parent_id)
  union all
  select c.entity_id, tree.root, coalesce(tree.type, c.parent_type)
  from tree join entity_corrections c on c.tenant = $1 and c.parent_id = tree.id
)
update entity_corrections c set root_id = tree.root, entity_type = tree.type
from tree join entity_corrections old on old.tenant = $1 and old.entity_id = tree.id
where c.tenant = $1 and c.entity_id = tree.id and (old.root_id, old.entity_type) is distinct from (tree.root, tree.type)
returning c.entity_id, old.root_id as previous_root_id, c.root_id, c.entity_type

-- name: correct_mentions
-- Put the mentions of written entity $2, so far part of $3, under entity $4 with type $5, in every generation.
update entity_mentions set entity_id = $4, written_id = nullif($2::uuid, $4), entity_type = $5
where tenant = $1 and entity_id = $3 and coalesce(written_id, entity_id) = $2

-- name: correct_relations
-- Put the relations of written entity $2, so far part of $3, under entity $4, in every generation.
update relations set
  subject_id = case when subject_id = $3 and coalesce(written_subject_id, subject_id) = $2 then $4 else subject_id end,
  written_subject_id = case when subject_id = $3 and coalesce(written_subject_id, subject_id) = $2 then nullif($2::uuid, $4) else written_subject_id end,
  object_id = case when object_id = $3 and coalesce(written_object_id, object_id) = $2 then $4 else object_id end,
  written_object_id = case when object_id = $3 and coalesce(written_object_id, object_id) = $2 then nullif($2::uuid, $4) else written_object_id end
where tenant = $1
  and (subject_id = $3 and coalesce(written_subject_id, subject_id) = $2 or object_id = $3 and coalesce(written_object_id, object_id) = $2)

-- name: correct_claims
-- Put the claims about written entity $2, so far part of $3, under entity $4, in every generation.
update claims set subject_id = $4, written_subject_id = nullif($2::uuid, $4)
where tenant = $1 and subject_id = $3 and coalesce(written_subject_id, subject_id) = $2

-- name: lock_entity_corrections
-- Corrections of entities $2 of tenants $1, locked against changes until the transaction ends.
select tenant, entity_id, root_id, entity_type from lock_entity_corrections($1::text[], $2::uuid[])

-- name: entity_correction
-- The correction of entity $2, if people have decided about it.
select type, parent_id from entity_corrections where tenant = $1 and entity_id = $2

-- name: count_aliases
-- Number of aliases of these entities, removed ones included.
select count(*) from entity_aliases where entity_id = any($1)

-- name: count_corrections
-- Number of these entities with corrections, undone ones included.
select count(*) from entity_corrections where entity_id = any($1)

-- name: count_named
-- Number of these ids that are entities with aliases or corrections.
select count(*) from (select entity_id from entity_aliases union select entity_id from entity_corrections) named where entity_id = any($1)

-- name: reset_corrections
-- Undo the corrections of entities $2 of tenant $1 (null: of all) that were decided before offset $3 (null: all).
update entity_corrections set type = null, parent_id = null, parent_type = null
where tenant = $1 and ($2::uuid[] is null or entity_id = any($2)) and ($3::bigint is null or greatest(typed_at, merged_at) < $3)

-- name: delete_corrections
-- Delete what `reset_corrections` has undone.
delete from entity_corrections
where tenant = $1 and ($2::uuid[] is null or entity_id = any($2)) and ($3::bigint is null or greatest(typed_at, merged_at) < $3)

-- name: erase_aliases
-- Delete the aliases of entities.
delete from entity_aliases where entity_id = any($1)

-- name: erase_tenant_aliases
-- Delete the aliases that a tenant decided before its erasure $1, which ended at offset $2 of topic `control`.
delete from entity_aliases a using erasures e
where e.receipt_id = $1 and e.scope = 'tenant' and a.tenant = e.tenant and a.decided_at < $2

-- name: unknown_aliases
-- The aliases among $3 that entity $2 does not have, or no longer has, in the order of $3. With $4, those that visible
-- documents state count too.
select alias from unnest($3::text[]) with ordinality given (alias, place)
where not exists (
  select from current_aliases a where a.tenant = $1 and a.entity_id = $2 and a.key = name_key(given.alias) and not a.is_removed
)
and not ($4::bool and exists (
  select from live_generation g
  join claims c on c.generation = g.name and c.tenant = $1 and c.subject_id = $2 and c.property in ('abbreviation', 'defined_term')
  join visible v on v.generation = g.name and v.document_id = c.document_id and v.ord = c.ord
  where name_key(c.value) = name_key(given.alias) and not {is_decided_alias}
))
order by place

-- name: aliases_in_question
-- Entities with these normalized aliases ($3), by their most frequent visible spelling, for the reader names $4, and
-- whether visible texts hold the alias. At most $5 mentions of each are read. Without documents $6 the aliases are those
-- that people gave, and abbreviations; with them, those that these documents state.
select a.key, a.alias, e.key as entity_key, e.type, e.name, a.kind, a.kind <> 'added' or {is_written} as is_written
from (
  select key, alias, entity_id, 'added' as kind from current_aliases
  where $6::uuid[] is null and tenant = $2 and key = any ($3::text[]) and not is_removed
  union all
  select name_key(c.value), min(c.value collate "C"), c.subject_id, c.property
  from (
    select tenant, document_id, ord, subject_id, property, value from claims
    where $6::uuid[] is null and generation = $1 and tenant = $2 and name_key(value) = any ($3::text[]) and property = 'abbreviation'
    union all
    select tenant, document_id, ord, subject_id, property, value from claims
    where generation = $1 and tenant = $2 and name_key(value) = any ($3::text[]) and document_id = any ($6::uuid[])
      and property in ('abbreviation', 'defined_term')
  ) c
  join visible v on v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord
  where not {is_decided_alias} and ($4::text[] is null or may_read(c.document_id, c.ord, $4))
  group by 1, 3, 4
) a
cross join lateral ({visible_entity}) e
order by a.key, e.name, e.type, a.kind

-- name: similar_keys
-- Normalized names of entities that begin as one of the names $3 does and are about as long, at most $4 per name.
-- Whether a name is known depends on documents readable for $5 alone, or the absence of a correction would confirm a
-- name in others; `similar_entities` drops entities that are not readable.
-- The index is searched for the next name, not read through: a name may have thousands of mentions.
select n.name, k.key
from (
  select named.name from unnest($3::text[]) named (name)
  -- The name of an entity is no misspelling of another.
  where not exists (
    select from entity_mentions m join visible v on v.generation = $1 and v.document_id = m.document_id and v.ord = m.ord
    where m.generation = $1 and m.tenant = $2 and m.key = named.name and ($5::text[] is null or may_read(m.document_id, m.ord, $5))
  )
) n
cross join lateral (
  with recursive keys (key, place) as (
    (select m.key, 1 from entity_mentions m
     where m.generation = $1 and m.tenant = $2 and m.key >= left(n.name, 3) and m.key <= left(n.name, 3) || 'zzzz'
     order by m.key limit 1)
    union all
    select (
      select m.key from entity_mentions m
      where m.generation = $1 and m.tenant = $2 and m.key > keys.key and m.key <= left(n.name, 3) || 'zzzz'
      order by m.key limit 1
    ), place + 1
    from keys where keys.key is not null and place < $4
  )
  select key from keys where abs(length(key) - length(n.name)) <= 2
) k

-- name: similar_entities
-- As `aliases_in_question`, for pairs of a name in the question ($3) and the normalized name of an entity ($6).
select a.alias as key, a.alias, e.key as entity_key, e.type, e.name, 'added' as kind, {is_written} as is_written
from (
  select distinct n.alias, m.entity_id
  from unnest($3::text[], $6::text[]) n (alias, key)
  join entity_mentions m on m.generation = $1 and m.tenant = $2 and m.key = n.key
) a
cross join lateral ({visible_entity}) e
order by a.alias, e.name, e.type

-- name: visible_entity
-- Included query: the visible spelling of entity a.entity_id, its own before those of entities that were merged into it.
select m.key, coalesce(m.entity_type, m.type) as type, mode() within group (order by m.name collate "C") as name
from (
  select m.key, m.type, m.name, m.entity_type, m.written_id
  from entity_mentions m join visible v on v.generation = $1 and v.document_id = m.document_id and v.ord = m.ord
  where m.generation = $1 and m.entity_id = a.entity_id and m.tenant = $2 and ($4::text[] is null or may_read(m.document_id, m.ord, $4))
  limit $5
) m
group by m.key, m.type, m.entity_type, m.written_id
order by m.written_id is not null, count(*) desc, m.key limit 1

-- name: is_written
-- Included expression: visible texts hold a.alias.
exists (
  select from (select distinct cfg from corpus_deltas where generation = $1 and tenant = $2) language
  cross join lateral (
    select c.document_id, c.ord from child_chunks c
    where c.generation = $1 and c.tenant = $2 and c.cfg = language.cfg and c.tsv @@ phraseto_tsquery(language.cfg, a.alias)
  ) c
  join visible v on v.generation = $1 and v.document_id = c.document_id and v.ord = c.ord
  where $4::text[] is null or may_read(c.document_id, c.ord, $4)
)

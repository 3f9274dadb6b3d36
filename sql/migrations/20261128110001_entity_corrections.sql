-- Corrections of entities by people, projected from topic `control`: other types, and entities that are parts of others.
-- Mentions, relations and claims are stored under the corrected entity, so that searches read no corrections.
set local search_path = anabranch, extensions, public;

create table entity_corrections (
  tenant text not null,
  entity_id uuid not null,
  -- Null: as documents state it. `typed_at` and `merged_at` are the offsets of the latest decisions.
  type text,
  typed_at bigint not null default -1,
  -- The entity that it was merged into, and that one's type as documents state it.
  parent_id uuid,
  parent_type text,
  merged_at bigint not null default -1,
  -- Both derive from all corrections of the tenant: the entity at the end of its parents, and the type that it has by
  -- them.
  root_id uuid not null,
  entity_type text,
  primary key (tenant, entity_id)
);
create index entity_corrections_by_parent on entity_corrections (tenant, parent_id) where parent_id is not null;

-- Null unless corrected. The written ids are those that documents give: type and name as they are written determine them.
alter table entity_mentions add column written_id uuid, add column entity_type text;
alter table relations add column written_subject_id uuid, add column written_object_id uuid;
alter table claims add column written_subject_id uuid;

-- Corrections of entities, locked until the transaction ends: rows that it inserts are either corrected here or by the
-- correction, which waits. Volatile, so that the query after the lock sees what was committed meanwhile.
create function lock_entity_corrections(tenants text[], entity_ids uuid[]) returns setof entity_corrections language plpgsql volatile
set search_path = anabranch, extensions, public
as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('entity corrections of ' || name))
  from (select distinct name from unnest(tenants) name order by name) named;
  return query select * from entity_corrections c where c.tenant = any (tenants) and c.entity_id = any (entity_ids);
end
$$;
revoke execute on function lock_entity_corrections(text[], uuid[]) from public;

-- The latest decision about each alias that people gave, under the entity that its own is now a part of.
create view current_aliases as
select distinct on (a.tenant, coalesce(c.root_id, a.entity_id), a.key)
  a.tenant, coalesce(c.root_id, a.entity_id) as entity_id, a.key, a.alias, a.is_removed
from entity_aliases a left join entity_corrections c on c.tenant = a.tenant and c.entity_id = a.entity_id
order by a.tenant, coalesce(c.root_id, a.entity_id), a.key, a.decided_at desc;
-- A removal may be of another entity than the alias, so the index has both.
drop index entity_aliases_by_key;
create index entity_aliases_by_key on entity_aliases (tenant, key);

-- As before, but with the corrected type, and named by its own mentions before those of its parts.
create or replace view entities with (security_invoker = true) as
select
  generation, tenant, entity_id as id,
  (array_agg(type order by is_own desc, mentions desc, type))[1] as type,
  (array_agg(key order by is_own desc, mentions desc, key collate "C"))[1] as key,
  (array_agg(name order by is_own desc, mentions desc, name collate "C"))[1] as name,
  array_agg(name order by is_own desc, mentions desc, name collate "C") as names,
  sum(mentions)::int as mentions
from (
  select m.generation, m.tenant, m.entity_id, coalesce(m.entity_type, m.type) as type, m.key, m.name, m.written_id is null as is_own, count(*) as mentions
  from entity_mentions m join visible v on v.generation = m.generation and v.document_id = m.document_id and v.ord = m.ord
  group by 1, 2, 3, 4, 5, 6, 7
) spelled
group by generation, tenant, entity_id;

create or replace view graph_entities with (security_barrier) as
select m.entity_id::text as id, m.tenant, min(coalesce(m.entity_type, m.type)) as type,
  coalesce(min(m.key) filter (where m.written_id is null), min(m.key)) as key,
  coalesce(mode() within group (order by m.name collate "C") filter (where m.written_id is null), mode() within group (order by m.name collate "C")) as name,
  count(*)::int as mentions
from live_generation g
join visible v on v.generation = g.name
join entity_mentions m on m.generation = g.name and m.document_id = v.document_id and m.ord = v.ord
where m.tenant = (select graph_tenant())
group by m.tenant, m.entity_id;

-- Without relations of an entity to itself, such as between two that were merged.
create or replace view graph_related with (security_barrier) as
select r.id::text as id, r.tenant, r.subject_id::text as subject_id, r.object_id::text as object_id, r.type, r.weight, r.chunk_id::text as chunk_id
from live_generation g
join visible v on v.generation = g.name
join relations r on r.generation = g.name and r.document_id = v.document_id and r.ord = v.ord
where r.tenant = (select graph_tenant()) and r.subject_id <> r.object_id;

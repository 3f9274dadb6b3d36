-- The live generation as a graph, for graph servers that read tables (PuppyGraph): nodes Entity, Document and
-- Chunk, relationships RELATED, MENTIONS and PART_OF. Ids are text, since such servers have no uuid.
set local search_path = anabranch, extensions, public;

-- The tenant is part of the role's name, which its session cannot change. Other roles, the owner too, read no rows.
create function graph_tenant() returns text language sql stable
as $$ select substring(current_user from '^anabranch_graph_(.+)$') $$;

-- Barriers: a function of the reader is not called with rows of other tenants.
-- Not from view `entities`, which checks the rights of the reader. `mode` is the most frequent spelling, then the smallest.
create view graph_entities with (security_barrier) as
select m.entity_id::text as id, m.tenant, min(m.type) as type, min(m.key) as key, mode() within group (order by m.name collate "C") as name, count(*)::int as mentions
from live_generation g
join visible v on v.generation = g.name
join entity_mentions m on m.generation = g.name and m.document_id = v.document_id and m.ord = v.ord
where m.tenant = (select graph_tenant())
group by m.tenant, m.entity_id;

create view graph_documents with (security_barrier) as
select d.id::text as id, d.tenant, d.external_id, coalesce(d.title, d.filename) as title, d.source_uri, d.collection, d.document_date::text as document_date
from live_generation g join visible v on v.generation = g.name join documents d on d.id = v.document_id
where d.tenant = (select graph_tenant());

create view graph_chunks with (security_barrier) as
select c.id::text as id, c.tenant, c.document_id::text as document_id, c.text, c.ordinal
from live_generation g
join visible v on v.generation = g.name
join child_chunks c on c.generation = g.name and c.document_id = v.document_id and c.ord = v.ord
where c.tenant = (select graph_tenant());

create view graph_related with (security_barrier) as
select r.id::text as id, r.tenant, r.subject_id::text as subject_id, r.object_id::text as object_id, r.type, r.weight, r.chunk_id::text as chunk_id
from live_generation g
join visible v on v.generation = g.name
join relations r on r.generation = g.name and r.document_id = v.document_id and r.ord = v.ord
where r.tenant = (select graph_tenant());

create view graph_mentions with (security_barrier) as
select m.id::text as id, m.tenant, m.chunk_id::text as chunk_id, m.entity_id::text as entity_id, m.name
from live_generation g
join visible v on v.generation = g.name
join entity_mentions m on m.generation = g.name and m.document_id = v.document_id and m.ord = v.ord
where m.tenant = (select graph_tenant());

create view graph_part_of with (security_barrier) as
select id, tenant, id as chunk_id, document_id from graph_chunks;

-- Create the role of a tenant, without login, and let it read the graph. Returns the role's name.
create function grant_graph_access(tenant text) returns text language plpgsql set search_path = anabranch, extensions, public
as $$
declare
  reader text := 'anabranch_graph_' || tenant;
begin
  -- Postgres cuts longer names, so that two tenants could share a role.
  if octet_length(reader) > 63 then
    raise exception 'tenant % is too long for a role: at most 47 characters', tenant;
  end if;
  if not exists (select from pg_roles where rolname = reader) then
    execute format('create role %I nologin', reader);
  end if;
  execute format('grant usage on schema anabranch to %I', reader);
  execute format('grant select on graph_entities, graph_documents, graph_chunks, graph_related, graph_mentions, graph_part_of to %I', reader);
  return reader;
end
$$;
revoke execute on function grant_graph_access(text) from public;

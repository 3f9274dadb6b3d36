-- Indexes for semantic and graph search and for filters.
set local search_path = anabranch, extensions, public;

-- Lets the planner scan a small tenant's vectors exactly instead of searching the HNSW graph of all tenants.
create index chunk_vectors_by_tenant on chunk_vectors (tenant);
create index visible_by_tenant on visible (tenant);

create index entity_mentions_by_key on entity_mentions (tenant, key, type);
create index entity_mentions_by_entity on entity_mentions (entity_id) include (chunk_id, document_id, ord);
create index entity_mentions_by_chunk on entity_mentions (chunk_id);
create index claims_by_subject on claims (subject_id);
create index relations_by_subject on relations (subject_id, weight desc) include (object_id, document_id, ord);
create index relations_by_object on relations (object_id, weight desc) include (subject_id, document_id, ord);

create index documents_by_metadata on documents using gin (metadata jsonb_path_ops);
create index documents_by_date on documents (tenant, (coalesce(document_date, (received_at at time zone 'UTC')::date)));
create index documents_by_arrival on documents (tenant, received_at, id);

-- An entity is derived from its visible mentions; its name is the most frequent spelling, then the smallest.
create view entities as
select
  generation, tenant, entity_id as id, min(type) as type, min(key) as key,
  (array_agg(name order by mentions desc, name collate "C"))[1] as name,
  array_agg(name order by mentions desc, name collate "C") as names,
  sum(mentions)::int as mentions
from (
  select m.generation, m.tenant, m.entity_id, m.type, m.key, m.name, count(*) as mentions
  from entity_mentions m join visible v on v.generation = m.generation and v.document_id = m.document_id and v.ord = m.ord
  group by 1, 2, 3, 4, 5, 6
) spelled
group by generation, tenant, entity_id;

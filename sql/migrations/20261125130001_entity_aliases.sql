-- Aliases that people give to entities, projected from topic `control`. Ids of entities derive from tenant, type and
-- name, so an alias applies to every generation.
set local search_path = anabranch, extensions, public;

create table entity_aliases (
  tenant text not null,
  entity_id uuid not null,
  key text not null generated always as (name_key(alias)) stored,
  alias text not null,
  -- A removed alias stays, so that an event that arrives again does not add it.
  is_removed boolean not null,
  decided_at bigint not null,
  primary key (tenant, entity_id, key)
);
create index entity_aliases_by_key on entity_aliases (tenant, key) where not is_removed;

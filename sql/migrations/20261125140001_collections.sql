-- Default profiles of collections, and deletions of collections. Both are projected from topic `control`.
set local search_path = anabranch, extensions, public;

create table collection_profiles (
  tenant text not null,
  collection text not null,
  -- Null: unset, which must outlive an older decision that arrives again.
  default_profile text,
  decided_at bigint not null,
  primary key (tenant, collection)
);

create table collection_deletions (
  id uuid primary key,
  tenant text not null,
  collection text not null,
  requested_at timestamptz not null,
  completed_at timestamptz
);
create index collection_deletions_by_collection on collection_deletions (tenant, collection, requested_at);

-- The profiles of the last reload, which every API process takes over. Operational, not a projection.
set local search_path = anabranch, extensions, public;

create table reloaded_profiles (
  singleton bool primary key default true check (singleton),
  -- Number of the reload.
  number bigint not null,
  sha256 text not null,
  -- Settings of each file, by type and name.
  files jsonb not null
);

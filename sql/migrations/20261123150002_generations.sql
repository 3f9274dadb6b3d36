-- Generations of the index, and their builds.
set local search_path = anabranch, extensions, public;

-- What each generation is built from. Several exist side by side.
create table generations (
  name text primary key,
  config jsonb not null,
  how jsonb not null,
  topics jsonb not null,
  state text not null check (state in ('building', 'shadow', 'live', 'standby', 'dropped')),
  base text,
  purpose text not null default 'first' check (purpose in ('first', 'rebuild', 'reindex')),
  barrier jsonb,
  created_at timestamptz not null default clock_timestamp(),
  built_at timestamptz
);

-- At most one row: the live generation, and the one before it, to which a rollback returns. `decided_at` is the
-- offset of the decision in topic `control`; an earlier decision that is read later has no effect.
create table live_generation (
  singleton bool primary key default true check (singleton),
  name text not null references generations,
  previous text,
  decided_at bigint not null default -1
);

-- How a generation is built, its cost and result. Operational, not a projection.
create table generation_builds (
  generation text primary key,
  paused bool not null default false,
  events_per_second real check (events_per_second > 0),
  keep_previous bool not null default false,
  phase text not null default 'loading',
  error jsonb,
  started_at timestamptz not null default clock_timestamp(),
  built_at timestamptz,
  events bigint,
  rows bigint
);

-- Inputs that engines processed while a generation was built.
create table generation_engine_calls (
  generation text not null,
  engine text not null,
  inputs bigint not null,
  primary key (generation, engine)
);

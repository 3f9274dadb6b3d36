-- Cost and result of a build. Operational.
set local search_path = anabranch, extensions, public;

alter table generation_builds
  add column keep bool not null default false,
  add column started_at timestamptz not null default clock_timestamp(),
  add column built_at timestamptz,
  add column events bigint,
  add column rows bigint;

-- Inputs that engines processed while a generation was built.
create table generation_engine_calls (
  generation text not null,
  engine text not null,
  inputs bigint not null,
  primary key (generation, engine)
);

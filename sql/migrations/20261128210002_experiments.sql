-- Experiments with two profiles, and the arm of each question that took part.
set local search_path = anabranch, extensions, public;

create table experiments (
  id uuid primary key,
  tenant text not null,
  started_at timestamptz not null,
  stopped_at timestamptz,
  body jsonb not null
);
create index experiments_by_tenant on experiments (tenant, started_at);

alter table runs add column experiment jsonb;
create index runs_by_experiment on runs ((experiment ->> 'experiment_id')) where experiment is not null;

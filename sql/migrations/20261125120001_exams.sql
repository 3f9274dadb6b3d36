-- Exams that the corpus sat, and the thresholds learned for generations. Both are projected from topic `control`.
set local search_path = anabranch, extensions, public;

create table exams (
  id uuid primary key,
  tenant text not null,
  generation text not null,
  completed_at timestamptz not null,
  -- The exam as its event holds it: spans and results, no text.
  exam jsonb not null
);
create index exams_by_time on exams (tenant, completed_at desc, id desc);

create table calibrations (
  tenant text not null,
  generation text not null,
  -- Fingerprint of the models behind the scores: a threshold says nothing about the scores of others.
  scores text not null,
  decided_at bigint not null,
  calibration jsonb not null,
  primary key (tenant, generation, scores)
);

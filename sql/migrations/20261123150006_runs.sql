-- Queries and feedback.
set local search_path = anabranch, extensions, public;

-- Queries and their answers. `run_record` is what a run stores so that it can be rerun as it was.
create table runs (
  id uuid primary key,
  tenant text not null,
  kind text not null,
  request jsonb,
  received_at timestamptz,
  requested_by text,
  generation text,
  response jsonb,
  answered_at timestamptz,
  candidates jsonb not null default '[]',
  numbers jsonb not null default '{}',
  run_record jsonb
);
create index runs_by_time on runs (tenant, received_at);

-- Feedback about answers.
create table feedback (
  id uuid primary key,
  tenant text not null,
  given_at timestamptz not null,
  run_id uuid,
  query text,
  useful bool,
  corrected_answer text,
  note text
);
create index feedback_by_time on feedback (tenant, given_at);
create index feedback_by_run on feedback (run_id);

-- A judgement refers to a span of a document, so it survives a change of chunker.
create table judgements (
  feedback_id uuid not null,
  part int not null,
  tenant text not null,
  document_id uuid not null,
  external_id text,
  revision int not null,
  char_start int not null,
  char_end int not null,
  quote text not null,
  grade int not null,
  primary key (feedback_id, part)
);
create index judgements_by_document on judgements (document_id);

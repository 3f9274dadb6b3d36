-- Facts that people and applications state, projected from topic `feedback`.
set local search_path = anabranch, extensions, public;

create table facts (
  id uuid primary key,
  tenant text not null,
  subject text not null,
  predicate text not null,
  object text not null,
  certainty float8 not null,
  half_life_days float8,
  source text,
  -- Names such as `user:ana`; null: the whole tenant.
  readers text[],
  -- `retracted` has no text left: its erasure was requested.
  status text not null check (status in ('proposed', 'approved', 'rejected', 'replaced', 'retracted')),
  stated_by text not null,
  stated_at timestamptz not null,
  expires_at timestamptz,
  replaces uuid,
  decided_by text,
  decided_at timestamptz,
  reason text,
  -- Words of the statement in lower case and without accents.
  words tsvector not null
);
create index facts_by_time on facts (tenant, stated_at desc, id desc);
create index facts_by_words on facts using gin (words) where status = 'approved';

-- Projections of the log. Derived tables are partitioned by generation; row keys are (generation, ord,
-- content id).
set local search_path = anabranch, extensions, public;

create table generations (
  name text primary key,
  config jsonb not null,
  how jsonb not null,
  topics jsonb not null,
  state text not null check (state in ('building', 'shadow', 'live', 'standby', 'dropped')),
  created_at timestamptz not null default clock_timestamp()
);

-- At most one row: the live generation.
create table live_generation (
  singleton bool primary key default true check (singleton),
  name text not null references generations
);

-- The latest accepted revision, and the withdrawal if there is one. A row without `latest` is a stub that was
-- locked before its document arrived.
create table documents (
  id uuid primary key,
  tenant text not null,
  external_id text,
  source text not null default '',
  numbered bool not null default false,
  source_uri text,
  filename text,
  media_type text,
  title text,
  language text,
  collection text,
  tags text[] not null default '{}',
  metadata jsonb not null default '{}',
  document_date date,
  content_sha256 text,
  blob jsonb,
  latest bigint[],
  withdrawn bigint[],
  revision int not null default 0,
  event_id text,
  accepted_id uuid,
  received_at timestamptz
);
create index documents_by_external_id on documents (tenant, external_id);
create index documents_by_collection on documents (tenant, collection);
create index documents_by_tags on documents using gin (tags);

-- `fields` are the producer's fields of this revision. An unchanged revision was accepted, but has no derived
-- rows.
create table document_revisions (
  document_id uuid not null,
  ord bigint[] not null,
  revision int not null,
  tenant text not null,
  title text,
  filename text,
  media_type text,
  content_sha256 text not null,
  blob jsonb not null,
  fields jsonb not null default '{}',
  unchanged bool not null default false,
  event_id text not null,
  source text not null,
  accepted_id uuid not null,
  received_at timestamptz not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (document_id, ord)
);
create index document_revisions_by_event on document_revisions (tenant, source, event_id);

create table revision_texts (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  title text,
  language text,
  media_type text not null,
  content_sha256 text not null,
  text_sha256 text not null,
  characters int not null,
  pages int,
  markdown text,
  blob jsonb,
  warnings jsonb not null,
  how text,
  fact_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (generation, document_id, ord)
) partition by list (generation);

create table parent_chunks (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  ordinal int not null,
  text text not null,
  section text not null,
  char_start int not null,
  char_end int not null,
  pages int[] not null,
  tokens int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- `cfg` is the text search configuration of the document's language; `tsv` and `bm` derive from title,
-- headings and text.
create table child_chunks (
  generation text not null,
  id uuid not null,
  parent_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  ordinal int not null,
  kind text not null,
  text text not null,
  prefix text not null,
  char_start int not null,
  char_end int not null,
  spans jsonb not null,
  tokens int not null,
  language text,
  cfg regconfig not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

create table chunk_vectors (
  generation text not null,
  chunk_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  embedding halfvec not null,
  background_dense real,
  background_maxsim real,
  primary key (generation, document_id, ord, chunk_id)
) partition by list (generation);
alter table chunk_vectors alter column embedding set storage plain;

create table chunk_states (
  generation text not null,
  chunk_id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  blob_key text not null,
  blob_offset int not null,
  blob_length int not null,
  primary key (generation, document_id, ord, chunk_id)
) partition by list (generation);

create table entity_mentions (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  entity_id uuid not null,
  type text not null,
  key text not null,
  name text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

create table relations (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  subject_id uuid not null,
  type text not null,
  object_id uuid not null,
  weight real not null,
  extractor text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

create table claims (
  generation text not null,
  id uuid not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunk_id uuid not null,
  subject_id uuid not null,
  property text not null,
  value text not null,
  char_start int not null,
  char_end int not null,
  primary key (generation, document_id, ord, id)
) partition by list (generation);

-- One row per part that arrived. A revision is complete when all chunk and vector parts exist.
create table settled (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  kind text not null check (kind in ('chunks', 'vectors', 'entities')),
  part int not null,
  parts int not null,
  tenant text not null,
  fact_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (generation, document_id, ord, kind, part)
) partition by list (generation);

-- The pointer that makes a revision searchable; it only moves forward. A pointer, because moving one row
-- takes 1 ms, while a flag on 1,000 vector rows takes 2 s.
create table visible (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  tenant text not null,
  chunks int not null,
  primary key (generation, document_id)
) partition by list (generation);

-- Document frequencies as signed deltas: readers sum them, a compactor folds them. Appending scales with
-- workers; updated counters serialize them.
create table lexical_deltas (
  generation text not null,
  tenant text not null,
  cfg regconfig not null,
  lexeme text not null,
  delta int not null
) partition by list (generation);

create table corpus_deltas (
  generation text not null,
  tenant text not null,
  cfg regconfig not null,
  chunks int not null
) partition by list (generation);

-- Superseded chunk texts, so that past answers can be displayed. Shared by all generations, without vectors.
create table chunk_history (
  document_id uuid not null,
  text_sha256 bytea not null,
  tenant text not null,
  text text not null,
  primary key (document_id, text_sha256)
);

create table runs (
  id uuid primary key,
  tenant text not null,
  kind text not null,
  request jsonb,
  received_at timestamptz,
  generation text,
  response jsonb,
  answered_at timestamptz,
  candidates jsonb not null default '[]',
  numbers jsonb not null default '{}'
);
create index runs_by_time on runs (tenant, received_at);

create table dead_letters (
  event_id uuid not null,
  stage text not null,
  generation text not null default '',
  buried_type text,
  tenant text,
  document_id uuid,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  code text not null,
  detail text not null,
  remedy text not null,
  traceback text,
  attempts int not null,
  record jsonb,
  producer_event_id text,
  producer_source text,
  dead_lettered_at timestamptz not null,
  primary key (event_id, stage, generation)
);
create index dead_letters_by_document on dead_letters (document_id);
create index dead_letters_by_producer on dead_letters (producer_source, producer_event_id);

-- Operational tables: not projections, not rebuilt from the log.
create table handled (
  generation text not null,
  stage text not null,
  event_id uuid not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  claim text not null,
  payload_sha256 text,
  flip jsonb,
  unchanged bool not null default false,
  reacted bool not null default false,
  document_id uuid,
  ord bigint[],
  part int,
  primary key (generation, stage, event_id)
) with (fillfactor = 80);
create index inbox_by_offset on handled (stage, log_topic, log_partition, log_offset);

create table job_stages (
  generation text not null,
  document_id uuid not null,
  ord bigint[] not null,
  stage text not null,
  part int not null,
  state text not null,
  attempts int not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  started_at timestamptz not null,
  duration_ms real,
  error jsonb,
  primary key (generation, document_id, ord, stage, part)
) with (fillfactor = 80);

create table jobs (
  id uuid primary key,
  tenant text not null,
  document_id uuid not null,
  event_id text not null,
  source text not null,
  external_id text,
  created_at timestamptz not null default clock_timestamp()
);
create index jobs_by_event on jobs (tenant, source, event_id);
create index jobs_by_document on jobs (document_id);

create table memo (
  tenant text not null,
  document_id uuid not null,
  engine text not null,
  input_sha256 bytea not null,
  answer bytea not null,
  primary key (document_id, engine, input_sha256, tenant)
);
alter table memo alter column answer set storage external;

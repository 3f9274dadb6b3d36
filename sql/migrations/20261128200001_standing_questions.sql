-- Standing questions: saved questions that are asked again when a changed document could matter to them. Projected
-- from topic `feedback`; the columns from `due_at` on are working state, which no event holds.
set local search_path = anabranch, extensions, public;

create table standing_questions (
  id uuid primary key,
  tenant text not null,
  asked_by text not null,
  -- What the owner may read, as saved; null: every document.
  readers text[],
  -- Null once it is deleted: the row stays, so that an erasure of the tenant finds the key of its event.
  request jsonb,
  saved_at timestamptz not null,
  changed_at timestamptz,
  -- When to ask; null: no change could matter. Null too while it is being asked, until `leased_until`.
  due_at timestamptz,
  leased_until timestamptz,
  -- Asked because another generation became live: its answer is what later ones are compared with, and no change.
  is_silent bool not null default false,
  problem jsonb,
  run_id uuid,
  answered_at timestamptz,
  -- What a new text is compared with: the documents that the answer was read from, the question's vector in this
  -- generation, and the similarity from which on a chunk could matter. Null: any could.
  documents uuid[] not null default '{}',
  generation text,
  vector extensions.halfvec,
  min_similarity real
);
create index standing_questions_by_time on standing_questions (tenant, saved_at desc, id desc);
create index standing_questions_due on standing_questions (coalesce(leased_until, due_at));
create index standing_questions_by_document on standing_questions using gin (documents);
create index standing_questions_by_answer on standing_questions (answered_at);
create index standing_questions_without_vector on standing_questions (tenant) where run_id is not null and min_similarity is null;

-- Words of the questions with their shares of the question's weight, in each text search configuration in use. A text
-- that holds enough of a question holds one of its key words: the heaviest, without which the others are too few.
create table standing_terms (
  tenant text not null,
  cfg regconfig not null,
  lexeme text not null,
  share real not null,
  is_key bool not null,
  question_id uuid not null references standing_questions on delete cascade,
  primary key (question_id, cfg, lexeme)
);
create index standing_terms_by_key on standing_terms (tenant, cfg, lexeme) include (question_id) where is_key;

-- Changed answers, and the state of their web hooks. An event that is read again finds its row, or adds one without
-- a delivery: a hook is called for a change that was found, and never for one that is projected.
create table answer_changes (
  id uuid primary key,
  question_id uuid not null,
  tenant text not null,
  changed_at timestamptz not null,
  data jsonb not null,
  is_published bool not null default true,
  delivery text check (delivery in ('pending', 'delivered', 'failed')),
  attempts int not null default 0,
  attempt_at timestamptz,
  delivery_error text
);
create index answer_changes_by_question on answer_changes (question_id, changed_at desc, id desc);
create index answer_changes_open on answer_changes (attempt_at) where delivery = 'pending' or not is_published;

-- How far topic `outcomes` was matched. One row, while any question is saved.
create table standing_cursor (
  singleton bool primary key default true check (singleton),
  cursor text not null
);

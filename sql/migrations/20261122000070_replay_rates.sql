-- The rate of a replay since it was last resumed, so that pauses do not count.
set local search_path = anabranch, extensions, public;

alter table replays
  add column resumed_at timestamptz,
  add column read_at_resume bigint not null default 0;

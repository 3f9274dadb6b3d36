-- How fast a replay is: since it was last taken up. What it was paused for does not count.
set local search_path = anabranch, extensions, public;

alter table replays
  add column resumed_at timestamptz,
  add column read_at_resume bigint not null default 0;

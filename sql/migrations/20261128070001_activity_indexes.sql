-- Recent events and recent work of the stages by time, without a scan of the tables.
set local search_path = anabranch, extensions, public;

-- BRIN: both grow in the order of time, and a B-tree would make every update of a stage's row write to it.
create index events_by_time on events using brin (appended_at) with (pages_per_range = 32, autosummarize = on);
create index job_stages_by_start on job_stages using brin (started_at) with (pages_per_range = 32, autosummarize = on);

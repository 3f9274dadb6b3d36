-- The process that answers a background run, so that others notice when it ends without a word.
set local search_path = anabranch, extensions, public;

alter table runs add column process_id uuid;
create index open_runs_by_process on runs (process_id) where process_id is not null and answered_at is null and stopped is null;

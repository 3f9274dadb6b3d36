-- A server that recovers from a killed backend keeps its start time, but assigns unwritten transaction ids
-- again. It resets its statistics then, and reports when.
set local search_path = anabranch, extensions, public;

create or replace function xact_counter_epoch() returns text language sql stable
set search_path = anabranch, extensions, public
as $$
  select (select oid from pg_database where datname = current_database()) || '/' || 'index_changes'::regclass::oid || '/' || extract(epoch from pg_postmaster_start_time())
    || '/' || coalesce((select extract(epoch from stats_reset) from pg_stat_archiver), 0)
$$;

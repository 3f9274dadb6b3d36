-- A server whose backend was killed recovers without starting anew, and counts transactions that it had not written yet once more. It forgets its statistics then,
-- and tells since when it has them.
set local search_path = anabranch, extensions, public;

create or replace function xact_counter_epoch() returns text language sql stable
set search_path = anabranch, extensions, public
as $$
  select (select oid from pg_database where datname = current_database()) || '/' || 'index_changes'::regclass::oid || '/' || extract(epoch from pg_postmaster_start_time())
    || '/' || coalesce((select extract(epoch from stats_reset) from pg_stat_archiver), 0)
$$;

-- Transactions that changed what queries see, so that stale cached answers are detected. Every transaction
-- that changes an index inserts a row; rows are deleted after an hour.
set local search_path = anabranch, extensions, public;

create table index_changes (
  xact xid8 not null default pg_current_xact_id(),
  tenant text not null,
  generation text not null -- '': all generations
);
create index index_changes_of_tenant on index_changes (tenant, xact);
create index index_changes_by_xact on index_changes (xact);

-- Transaction ids restart in another database, and a server that crashed or was restored may assign some of
-- them twice.
create function xact_counter_epoch() returns text language sql stable
set search_path = anabranch, extensions, public
as $$
  select (select oid from pg_database where datname = current_database()) || '/' || 'index_changes'::regclass::oid || '/' || extract(epoch from pg_postmaster_start_time())
$$;

-- Which transactions changed what questions see, so that an answer that is kept can be told from one that is out of date. Rows are inserted by whoever
-- changes an index, in the same transaction, and removed an hour later.
set local search_path = anabranch, extensions, public;

create table index_changes (
  xact xid8 not null default pg_current_xact_id(),
  tenant text not null,
  generation text not null -- '': every one
);
create index index_changes_of_tenant on index_changes (tenant, xact);
create index index_changes_by_xact on index_changes (xact);

-- Transactions are counted from the beginning in another database, and a server that crashed or was put back may count some of them twice.
create function xact_counter_epoch() returns text language sql stable
set search_path = anabranch, extensions, public
as $$
  select (select oid from pg_database where datname = current_database()) || '/' || 'index_changes'::regclass::oid || '/' || extract(epoch from pg_postmaster_start_time())
$$;

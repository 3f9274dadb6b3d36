-- State of slot $1, its publication of table $2.$3, and the flushed WAL position; null without a slot.
select
  (select wal_status from pg_replication_slots where slot_name = $1 and database = current_database()) as wal_status,
  (select confirmed_flush_lsn - '0/0'::pg_lsn from pg_replication_slots where slot_name = $1 and database = current_database()) as advanced,
  exists (select from pg_publication_tables where pubname = $1 and schemaname = $2 and tablename = $3) as published,
  pg_current_wal_flush_lsn() - '0/0'::pg_lsn as flushed

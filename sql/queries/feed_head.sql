-- Snapshot horizon of the log, and the last batch of expired records.
select pg_snapshot_xmin(pg_current_snapshot()) as horizon, batch as last_batch from expired_batches

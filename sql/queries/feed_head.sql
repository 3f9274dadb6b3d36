-- How far the log can be read, and the last batch that went.
select pg_snapshot_xmin(pg_current_snapshot()) as horizon, batch as last_batch from expired_batches

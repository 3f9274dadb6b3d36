-- Export this transaction's snapshot, with generation $1 or the live one.
select pg_export_snapshot() as snapshot, xact_counter_epoch() || ' ' || pg_current_snapshot() as standing, name, config, how, topics, state
from generations
where name = coalesce($1::text, (select name from live_generation)) and state <> 'dropped'

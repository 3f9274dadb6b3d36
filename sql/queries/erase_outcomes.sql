-- Delete outcomes on the Postgres log that name these documents or their unreadable events.
with gone as (
  delete from events where topic = 'outcomes' and (headers ->> 'ce_document' = any($1) or headers ->> 'ce_causationid' = any($2))
  returning topic, xact, position
), {record_expired_ranges}
select count(*) from gone

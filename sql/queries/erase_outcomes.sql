-- What the log that lies in this database told producers of these documents, and of events of theirs that could not be read.
with gone as (
  delete from events where topic = 'outcomes' and (headers ->> 'ce_document' = any($1) or headers ->> 'ce_causationid' = any($2))
  returning topic, xact, position
), {record_expired_ranges}
select count(*) from gone

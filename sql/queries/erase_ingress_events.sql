-- Delete processed records of these producer events ($2) and ingress dead letters ($1) from topic `raw`.
-- Only on the Postgres log.
with places as (
  select log_offset from handled where generation = '' and stage = 'receive' and log_topic = 'raw' and event_id = any($2::uuid[]) and reacted
  union
  select log_offset from dead_letters where stage = 'receive' and log_topic = 'raw' and coalesce(document_id, event_id) = any($1::uuid[])
), gone as (
  delete from events e using places p where e.topic = 'raw' and e.position = p.log_offset returning e.topic, e.xact, e.position
), {record_expired_ranges}
select count(*) from gone

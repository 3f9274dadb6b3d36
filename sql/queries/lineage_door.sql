-- Where the door read an event: its claims are kept for ever.
select log_topic, log_partition, log_offset from handled where generation = '' and stage = 'receive' and event_id = $1

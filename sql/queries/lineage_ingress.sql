-- Where the door read an event: its claims are kept for ever, and where it stood until the tables are made again from the log.
select log_topic, log_partition, log_offset from handled where log_partition >= 0 and generation = '' and stage = 'receive' and event_id = $1

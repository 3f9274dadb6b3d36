-- Position of an event in topic `raw`, as its ingress claim recorded it.
-- Claims are kept forever, but a rebuild of the tables loses the position (partition -1).
select log_topic, log_partition, log_offset from handled where log_partition >= 0 and generation = '' and stage = 'receive' and event_id = $1

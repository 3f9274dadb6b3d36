-- Delete claims below the acknowledged prefix.
-- Unhandled claims stay for another 10,000 offsets: on the Postgres log a lower position may come later in reading
-- order.
delete from handled
where stage = $2 and log_topic = $3 and log_partition = $4 and log_offset < $5 and generation = any($1::text[]) and (reacted or log_offset < $5 - 10000)

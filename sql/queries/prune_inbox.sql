-- Forget claims below the acknowledged prefix. On the Postgres log an event may lie below it and come later in reading order: what is owed stays a while.
delete from handled
where stage = $2 and log_topic = $3 and log_partition = $4 and log_offset < $5 and generation = any($1::text[]) and (reacted or log_offset < $5 - 10000)

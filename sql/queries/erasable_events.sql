-- How many events of the log say something of these documents.
select count(distinct (log_topic, log_partition, log_offset)) from revision_positions where document_id = any($1::uuid[])

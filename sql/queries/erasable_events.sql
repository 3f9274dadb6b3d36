-- Number of log events about these documents.
select count(distinct (log_topic, log_partition, log_offset)) from revision_positions where document_id = any($1::uuid[])

-- The stage's oldest unfinished work, of generation $2 or of all.
select document_id, part, attempts, log_topic as topic, log_partition as partition, log_offset as "offset",
       extract(epoch from clock_timestamp() - started_at)::float8 as seconds
from job_stages
where stage = $1 and ($2::text is null or generation = $2) and state = 'running'
order by started_at limit 1

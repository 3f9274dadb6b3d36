-- Where in the log the first event stands that what generation $1 shows was made from, by topic and partition.
select p.log_topic as topic, p.log_partition as partition, min(p.log_offset) as first
from visible v
join revision_places p on p.document_id = v.document_id and p.ord = v.ord and p.generation = v.generation
where v.generation = $1
group by p.log_topic, p.log_partition

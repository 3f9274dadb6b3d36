-- First event per partition that the visible revisions of generation $1 were made from.
-- With $2, only of revisions that this generation has not read.
select p.log_topic as topic, p.log_partition as partition, min(p.log_offset) as first
from visible v
join revision_positions p on p.document_id = v.document_id and p.ord = v.ord and p.generation = v.generation
where v.generation = $1
  and ($2::text is null or not exists (
    select from revision_positions o
    where o.generation = $2 and o.document_id = p.document_id and o.ord = p.ord
      and o.log_topic = p.log_topic and o.log_partition = p.log_partition and o.log_offset = p.log_offset
  ))
group by p.log_topic, p.log_partition

-- When the first record of topic $2 was appended that reader $1 has not finished.
select e.appended_at
from events e
where e.topic = $2 and (e.xact, e.position) > (select coalesce(max(xact), '0'::xid8), coalesce(max(position), 0) from log_readers where reader = $1 and topic = $2)
order by e.xact, e.position
limit 1

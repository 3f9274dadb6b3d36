-- Lease of a group on a topic, and whether its process is connected.
select lease_owner is not null and lease_until > clock_timestamp() as leased, lease_until,
       exists (select from pg_stat_activity a where a.application_name = 'anabranch ' || lease_owner) as seen
from log_readers where reader = $1 and topic = $2

-- A run with everything that was recorded of it.
select id as run_id, kind, request, received_at, generation, response, answered_at, candidates, numbers, basis
from runs
where tenant = $1 and id = $2 and ($3::text is null or asked_by = $3)

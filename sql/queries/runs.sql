-- Questions that were asked, the latest first; one by id ($2).
select id as run_id, kind, request, received_at, generation, response, answered_at, candidates, numbers, basis
from runs
where tenant = $1 and ($2::uuid is null or id = $2)
  and ($3::timestamptz is null or (coalesce(received_at, answered_at), id) < ($3, $4::uuid))
order by coalesce(received_at, answered_at) desc, id desc
limit $5

-- Runs, newest first, without their recorded details.
select id as run_id, kind, received_at, generation, answered_at, request -> 'query' as query, response -> 'refused' as refused, response -> 'answer' as answer
from runs
where tenant = $1 and ($5::text is null or asked_by = $5) and ($2::timestamptz is null or (coalesce(received_at, answered_at), id) < ($2, $3::uuid))
order by coalesce(received_at, answered_at) desc, id desc
limit $4

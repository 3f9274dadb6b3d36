-- Runs of a period, newest first, one per distinct request regardless of generation.
select id as run_id, request from (
  select distinct on (request - 'generation') id, request, received_at
  from runs
  where tenant = $1 and request is not null and response is not null
    and received_at >= coalesce($2::timestamptz, '-infinity') and received_at < coalesce($3::timestamptz, 'infinity')
  order by request - 'generation', received_at desc, id
) asked
order by received_at desc, run_id
limit $4

-- name: upsert_experiment
-- Store an experiment ($5). It stops once: a repeated start does not revive it.
insert into experiments as e (id, tenant, started_at, stopped_at, body) values ($1, $2, $3, $4, $5)
on conflict (id) do update set stopped_at = excluded.stopped_at, body = excluded.body where e.stopped_at is null

-- name: experiments
-- Experiments of tenant $1, the latest first.
select body from experiments where tenant = $1 order by started_at desc, id

-- name: experiment_outcomes
-- Answered questions of each arm of experiment $2, refusals, and those whose last feedback says whether they were useful.
select r.experiment ->> 'arm' as arm, count(*)::int as runs, count(*) filter (where (r.response ->> 'refused')::bool)::int as refused,
  count(f.useful)::int as judged, count(*) filter (where f.useful)::int as useful
from runs r
left join lateral (
  select useful from feedback where run_id = r.id and tenant = $1 and useful is not null order by given_at desc, id limit 1
) f on true
where r.tenant = $1 and r.experiment ->> 'experiment_id' = $2
group by 1

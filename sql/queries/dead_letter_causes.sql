-- Open dead letters by cause.
select stage, code, count(*)::int as events, min(dead_lettered_at) as first, max(dead_lettered_at) as last, (array_agg(detail order by dead_lettered_at desc))[1] as latest_detail,
  (array_agg(remedy order by dead_lettered_at desc))[1] as remedy
from dead_letters
where coalesce(tenant, 'default') = $1 and closed_at is null
group by stage, code
order by events desc, stage, code

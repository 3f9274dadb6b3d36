-- How many dead letters each stage has left. Events without a readable tenant are anyone's.
select stage, count(*)::int as events from dead_letters where ($1::text is null or coalesce(tenant, 'default') = $1) and closed_at is null group by stage order by stage

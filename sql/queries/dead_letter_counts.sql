-- Number of open dead letters per stage. Events without a readable tenant belong to every tenant.
select stage, count(*)::int as events from dead_letters where ($1::text is null or coalesce(tenant, 'default') = $1) and closed_at is null group by stage order by stage

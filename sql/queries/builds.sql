-- Builds of generations that are not dropped, oldest first; or of generation $1.
select
  g.name, g.config, g.how, g.topics, g.state, g.base, g.purpose, coalesce(b.phase, 'loading') as phase, coalesce(b.paused, false) as paused,
  b.events_per_second, coalesce(b.keep, false) as keep, b.error, b.started_at, coalesce(b.built_at, g.built_at) as built_at, b.events, b.rows,
  coalesce((select jsonb_object_agg(engine, inputs) from generation_engine_calls c where c.generation = g.name), '{}') as engine_calls
from generations g left join generation_builds b on b.generation = g.name
where g.state <> 'dropped' and ($1::text is null or g.name = $1)
order by g.created_at, g.name

-- Generations with their inputs, sizes and builds: generation $1, or all that are not dropped.
-- With a tenant ($3), documents and chunks are the tenant's, and bytes and build are null.
select
  g.name, g.state, g.base, g.purpose, g.created_at, g.built_at, g.config, g.how, g.topics, l.name is not null as live, g.name = p.previous as previous,
  coalesce(v.documents, 0) as documents, coalesce(v.chunks, 0)::bigint as chunks, case when $3::text is null then coalesce(b.bytes, 0)::bigint end as bytes,
  case when $3::text is null and g.state in ('building', 'shadow') then to_jsonb(w) - 'generation' end as build
from generations g
left join live_generation l on l.name = g.name
left join live_generation p on true
left join generation_builds w on w.generation = g.name
left join (select generation, count(*) as documents, sum(chunks) as chunks from visible where $3::text is null or tenant = $3 group by generation) v on v.generation = g.name
left join lateral (
  select sum(pg_total_relation_size(c.oid)) as bytes from pg_class c
  where c.relnamespace = 'anabranch'::regnamespace and c.relkind = 'r' and c.relname = any (select t || '_' || g.name from unnest($2::text[]) t)
) b on true
where case when $1::text is null then g.state <> 'dropped' else g.name = $1 end
order by g.created_at, g.name

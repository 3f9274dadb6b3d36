-- Visible entities by id, for the caller's reader names ($3).
select e.id, e.type, e.name, e.mentions
from live_generation g
cross join lateral (
  select id, type, name, mentions from entities where $3::text[] is null and generation = g.name and tenant = $1 and id = any ($2::uuid[])
  union all
  select id, type, name, mentions from ({readable_entities}) readable where $3::text[] is not null and id = any ($2::uuid[])
) e

-- Visible entities of the live generation, most mentioned first, by id ($2), part of a name ($4) or type ($5).
-- $3 are the caller's reader names.
select e.id, e.type, e.name, e.names, e.mentions
from live_generation g
cross join lateral (
  select id, type, name, names, mentions from entities where $3::text[] is null and generation = g.name and tenant = $1 and ($2::uuid is null or id = $2)
  union all
  select id, type, name, names, mentions from ({readable_entities}) readable where $3::text[] is not null and ($2::uuid is null or id = $2)
) e
where ($4::text is null or exists (select from unnest(e.names) spelled where strpos(lower(spelled), lower($4)) > 0))
  and ($5::text is null or e.type = $5)
  and ($6::int is null or (-e.mentions, e.id) > (-$6::int, $7::uuid))
order by e.mentions desc, e.id
limit $8

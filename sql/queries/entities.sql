-- Visible entities of the live generation by mentions, the most first: one by id ($2), or those whose name holds a text ($3), of a type ($4).
select e.id, e.type, e.name, e.names, e.mentions
from live_generation g
cross join lateral (select * from entities where generation = g.name and tenant = $1 and ($2::uuid is null or id = $2)) e
where ($3::text is null or exists (select from unnest(e.names) spelled where strpos(lower(spelled), lower($3)) > 0))
  and ($4::text is null or e.type = $4)
  and ($5::int is null or (-e.mentions, e.id) > (-$5::int, $6::uuid))
order by e.mentions desc, e.id
limit $7

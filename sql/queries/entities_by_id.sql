-- Visible entities by id.
select e.id, e.type, e.name, e.mentions
from live_generation g
join entities e on e.generation = g.name and e.tenant = $1 and e.id = any ($2::uuid[])

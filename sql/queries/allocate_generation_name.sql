-- A name for a generation that is to be built, beside all that there have been or were to be; with what is wanted of its build ($1 keep, $2 events a second).
insert into generation_builds (generation, keep, events_per_second)
select 'g' || 1 + coalesce(max(substring(name from '^g(\d{1,9})$')::int), 0), $1, $2
from (select name from generations union all select generation from generation_builds) names
returning generation

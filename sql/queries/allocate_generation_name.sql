-- Allocate the next generation name; with $1 keep and $2 events per second of its build.
-- Counts dropped and failed generations as well, so that no name is reused.
insert into generation_builds (generation, keep, events_per_second)
select 'g' || 1 + coalesce(max(substring(name from '^g(\d{1,9})$')::int), 0), $1, $2
from (select name from generations union all select generation from generation_builds) names
returning generation

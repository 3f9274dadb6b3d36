-- State of generation $1, and whether it is live.
select g.state, l.name is not null as live
from generations g left join live_generation l on l.name = g.name
where g.name = $1

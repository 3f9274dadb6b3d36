-- Whether generation $1 can be given up: its state, and whether it is the one that answers.
select g.state, l.name is not null as live
from generations g left join live_generation l on l.name = g.name
where g.name = $1

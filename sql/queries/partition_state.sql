-- Table $1 of ours: whether it is a partition of another, and on its way out.
select inh.inhrelid is not null as attached, coalesce(inh.inhdetachpending, false) as detaching
from pg_class c left join pg_inherits inh on inh.inhrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

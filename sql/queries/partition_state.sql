-- Whether table $1 is attached to a parent, and whether a detach is in progress.
select inh.inhrelid is not null as attached, coalesce(inh.inhdetachpending, false) as detaching
from pg_class c left join pg_inherits inh on inh.inhrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

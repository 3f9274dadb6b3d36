-- Whether index $1 is valid; no row if it does not exist.
select i.indisvalid
from pg_class c join pg_index i on i.indexrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

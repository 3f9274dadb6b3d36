-- Whether our index $1 is complete (no row: there is none).
select i.indisvalid
from pg_class c join pg_index i on i.indexrelid = c.oid
where c.relname = $1 and c.relnamespace = 'anabranch'::regnamespace

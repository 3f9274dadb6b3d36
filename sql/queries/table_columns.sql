-- Columns of a source table, and their ordinal in its primary key.
select a.attname as name, a.atttypid as oid, array_position(i.indkey::int2[], a.attnum) + 1 as in_key
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_index i on i.indrelid = c.oid and i.indisprimary
where n.nspname = $1 and c.relname = $2 and a.attgenerated = '' order by a.attnum

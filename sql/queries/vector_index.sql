-- Partition of `chunk_vectors` for generation $1, and whether its index $2 is valid (null: none).
select partition.oid::regclass::text as partition, i.indisvalid as valid
from pg_inherits inherits
join pg_class partition on partition.oid = inherits.inhrelid
left join pg_class named on named.relname = $2 and named.relnamespace = partition.relnamespace
left join pg_index i on i.indexrelid = named.oid
where inherits.inhparent = 'chunk_vectors'::regclass
  and pg_get_expr(partition.relpartbound, partition.oid) = format('FOR VALUES IN (%L)', $1::text)

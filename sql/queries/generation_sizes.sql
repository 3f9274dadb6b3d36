-- What each generation keeps: documents that it shows, their chunks, and the bytes of its tables with their indexes.
select g.name, coalesce(v.documents, 0) as documents, coalesce(v.chunks, 0)::bigint as chunks, coalesce(b.bytes, 0)::bigint as bytes
from generations g
left join (select generation, count(*) as documents, sum(chunks) as chunks from visible group by generation) v on v.generation = g.name
left join lateral (
  select sum(pg_total_relation_size(c.oid)) as bytes from pg_class c
  where c.relnamespace = 'anabranch'::regnamespace and c.relkind = 'r' and c.relname = any (select t || '_' || g.name from unnest($2::text[]) t)
) b on true
where $1::text is null or g.name = $1

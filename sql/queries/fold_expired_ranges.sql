-- Fold expired ranges of topics with more than 2 * $1: of all but the latest $1, each $2 into one.
with numbered as (
  select id, row_number() over (partition by topic order by xact desc, position desc) as number, count(*) over (partition by topic) as rows from expired_ranges
), taken as (
  delete from expired_ranges g using numbered n
  where g.id = n.id and n.rows > 2 * $1::bigint and n.number > $1
  returning g.*, (n.number - $1 - 1) / $2::bigint as fold
)
insert into expired_ranges (topic, first_xact, first_position, xact, position, first_batch, batch, records)
select topic, (array_agg(first_xact order by first_xact, first_position))[1], (array_agg(first_position order by first_xact, first_position))[1],
       (array_agg(xact order by xact desc, position desc))[1], (array_agg(position order by xact desc, position desc))[1],
       min(first_batch), max(batch), sum(records)
from taken group by topic, fold

-- Delete records of topics $1, at most $2, and say how many there were.
with gone as (
  delete from events where position in (select position from events where topic = any ($1::text[]) limit $2) returning 1
)
select count(*) from gone

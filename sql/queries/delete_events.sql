-- Delete at most $2 records of topics $1 and return how many.
with gone as (
  delete from events where position in (select position from events where topic = any ($1::text[]) limit $2) returning 1
)
select count(*) from gone

-- Move group $1 in topic $2 before the first event whose reaction is pending, else to the end.
-- $3 generation, $4 stage, $5 whether the stage publishes anything.
with owed as (
  select e.xact, e.position
  from events e
  where e.topic = $2 and $5
    and not exists (
      select from handled h where h.generation = $3 and h.stage = $4 and h.event_id::text = e.headers ->> 'ce_id' and (h.reacted or h.claim <> 'owed')
    )
  order by e.xact, e.position limit 1
), place as (
  select e.xact, e.position from events e
  where e.topic = $2 and not exists (select from owed o where (e.xact, e.position) >= (o.xact, o.position))
  order by e.xact desc, e.position desc limit 1
)
insert into log_readers (reader, topic, xact, position)
select $1, $2, xact, position from place
on conflict (reader, topic) do update set xact = excluded.xact, position = excluded.position

-- Switch to another generation; the one that answered stands by.
with live as (
  insert into live_generation (name) values ($1) on conflict (singleton) do update set name = excluded.name returning name
)
update generations g set state = case when g.name = $1 then 'live' else 'standby' end
from live where g.name = $1 or g.state = 'live'

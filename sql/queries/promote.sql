-- Make generation $1 live by the decision at offset $2 of topic `control`; the previous one becomes standby.
-- Has no effect if a later decision was applied, or if the generation was dropped since.
with live as (
  update live_generation set name = $1, decided_at = $2, previous = case when name = $1 then previous else name end
  where decided_at < $2 and exists (select from generations where name = $1 and state <> 'dropped')
  returning name
)
update generations g set state = case when g.name = $1 then 'live' else 'standby' end
from live where g.name = $1 or g.state = 'live'

-- Mark events of topic $3 as handled by stage $2 of generation $1, if topics $4 contain their effects.
-- Only on the Postgres log. Events that are erased, or older than $5, count as handled. Events encrypted with a
-- lost key are redelivered under their own id, so they are not marked, and their effects are no evidence.
with lost as (
  select id::text as id from keystore.keys where lost_at is not null and wrapped is null and destroyed_at is null
)
insert into handled as h (generation, stage, event_id, log_topic, log_partition, log_offset, claim, reacted)
select distinct on (e.headers ->> 'ce_id') $1, $2, (e.headers ->> 'ce_id')::uuid, e.topic, 0, e.position, 'owed', true
from events e
where e.topic = $3
  and not exists (select from lost where lost.id = e.headers ->> 'ce_keyid')
  and (
    exists (
      select from events c
      where c.topic = any ($4::text[]) and c.headers ->> 'ce_causationid' = e.headers ->> 'ce_id'
        and not exists (select from lost where lost.id = c.headers ->> 'ce_keyid')
    )
    or e.appended_at < clock_timestamp() - $5::interval
    or exists (select from keystore.keys k where k.id::text = e.headers ->> 'ce_keyid' and k.destroyed_at is not null)
  )
order by e.headers ->> 'ce_id', e.position
on conflict (generation, stage, event_id) do update set reacted = true

-- Release a reader lease and notify waiting processes.
with ended as (
  update log_readers set lease_owner = null, lease_until = null
  where reader = $1 and topic = $2 and lease_owner = $3
  returning topic
)
select pg_notify('anabranch_events', topic) from ended

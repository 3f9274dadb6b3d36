-- Return the current key of each subject, inserting the proposed one if there is none.
-- Ordered inserts prevent deadlocks; `do update` makes existing rows appear in `returning`.
with wanted as (
  select * from unnest($1::uuid[], $2::text[], $3::uuid[], $4::bytea[], $5::bigint[]) k (id, tenant, subject, wrapped, slot)
)
insert into keystore.keys (id, tenant, subject, wrapped, slot)
select id, tenant, subject, wrapped, slot from wanted order by subject, tenant
on conflict (subject, tenant) where destroyed_at is null do update set subject = excluded.subject
returning id, tenant, subject, wrapped as wrapped_key, slot

-- name: key_columns
-- Included columns of a key.
id, tenant, subject, wrapped as wrapped_key, slot

-- name: destroy_keys
-- Destroy keys, also those that are not known yet.
-- A restored backup then does not bring the unknown ones back.
insert into keystore.keys (id, tenant, destroyed_at)
select id, $1, clock_timestamp()
from unnest($2::uuid[]) k (id)
order by id
on conflict (id) do update set wrapped = null, destroyed_at = coalesce(keys.destroyed_at, excluded.destroyed_at)

-- name: count_other_connections
-- Number of connections of other processes of ours.
select count(*)
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'anabranch%'

-- name: rewrap_keys
-- Replace the wrapped keys and their slots.
update keystore.keys k
set wrapped = n.wrapped, slot = n.slot
from unnest($1::uuid[], $2::bytea[], $3::bigint[]) n (id, wrapped, slot)
where k.id = n.id

-- name: keys_by_id
-- Keys by id.
select {key_columns} from keystore.keys where id = any($1)

-- name: current_key_ids
-- Ids of the current keys of these subjects.
select id from keystore.keys where tenant = $1 and subject = any($2) and destroyed_at is null order by id

-- name: destroyed_slots
-- Slots of the key file whose keys are destroyed.
select slot from keystore.keys where slot is not null and wrapped is null order by slot

-- name: last_slot
-- Highest slot of the key file that a key refers to.
select max(slot) from keystore.keys

-- name: add_readable_tenant
-- Record that a tenant's events are stored unencrypted.
insert into keystore.unencrypted_tenants (tenant) values ($1) on conflict do nothing

-- name: readable_since
-- Since when events of a tenant or of all ($2) are stored unencrypted.
select min(since) from keystore.unencrypted_tenants where tenant in ($1, $2)

-- name: unsigned_events
-- Offsets below which unsigned events are accepted, with their MAC.
select below, mac from keystore.unsigned_events

-- name: insert_unsigned_events
-- Record the offsets below which unsigned events are accepted; recorded ones stay.
insert into keystore.unsigned_events (below, mac) values ($1, $2) on conflict do nothing

-- name: master_fingerprint
-- Fingerprint of the master key.
select fingerprint from keystore.master

-- name: signing_keys
-- Signing keys of former master keys.
select fingerprint, wrapped from keystore.signing_keys

-- name: wrapped_keys
-- All keys that are neither destroyed nor lost.
select {key_columns} from keystore.keys where wrapped is not null order by id

-- name: rewrap_signing_key
-- Replace a wrapped signing key.
update keystore.signing_keys set wrapped = $2 where fingerprint = $1

-- name: insert_signing_key
-- Store the signing key of a former master key.
insert into keystore.signing_keys values ($1, $2) on conflict do nothing

-- name: replace_unsigned_mac
-- Replace the MAC of the offsets below which unsigned events are accepted.
update keystore.unsigned_events set mac = $1

-- name: replace_master_fingerprint
-- Replace the fingerprint of the master key.
update keystore.master set fingerprint = $1

-- name: key_file
-- Id of the key file with shares of the keys.
select key_file from keystore.master

-- name: insert_master
-- Record the first master key.
insert into keystore.master (fingerprint) values ($1) on conflict do nothing

-- name: set_key_file
-- Record the first key file.
update keystore.master set key_file = $1 where key_file is null

-- name: destroyed_keys
-- The subset of these keys that is destroyed.
select id from keystore.keys where id = any($1) and destroyed_at is not null

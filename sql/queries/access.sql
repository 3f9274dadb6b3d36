-- name: api_key_columns
-- Included columns of an API key.
id, tenant, name, role, readers, created_at, created_by, expires_at, rotated_at, previous_until, revoked_at

-- name: find_api_key
-- Fields of an API key that authentication reads, with its validity by the clock of the database.
select id, tenant, role, readers, hash,
  revoked_at is null and (expires_at is null or expires_at > clock_timestamp()) as valid,
  case when previous_until > clock_timestamp() then previous_hash end as previous_hash
from credentials.api_keys where id = $1

-- name: get_api_key
-- An API key by id.
select {api_key_columns} from credentials.api_keys where id = $1

-- name: list_api_keys
-- API keys of a tenant, newest first, after the key with id $2; with readers $4, those that these readers cover.
select {api_key_columns} from credentials.api_keys k
where tenant = $1 and ($4::text[] is null or readers <@ $4) and ($2::text is null or (created_at, id) < (select created_at, id from credentials.api_keys where tenant = $1 and id = $2))
order by created_at desc, id desc limit $3

-- name: has_api_keys
-- Whether there is any API key.
select exists (select from credentials.api_keys)

-- name: insert_api_key
-- Store a new API key.
insert into credentials.api_keys (id, tenant, name, role, readers, created_by, expires_at, hash)
values ($1, $2, $3, $4, $5, $6, $7, $8) returning {api_key_columns}

-- name: rotate_api_key
-- Replace the hash of a key that is not revoked; the previous hash stays valid until $3.
update credentials.api_keys set rotated_at = clock_timestamp(), hash = $2, previous_until = $3,
  previous_hash = case when $3::timestamptz is null then null else hash end
where id = $1 and revoked_at is null returning {api_key_columns}

-- name: revoke_api_key
-- Revoke an API key; the first revocation counts.
update credentials.api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()), previous_hash = null, previous_until = null
where id = $1 returning {api_key_columns}

-- name: insert_audit_event
-- Store an audit event.
insert into audit_events (id, tenant, occurred_at, actor, role, action, subject, request_id, outcome) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict do nothing

-- name: list_audit_events
-- Audit events of a tenant or of all, newest first, after a cursor: with text $5 in their fields, of actor $6, action $7
-- and outcome $8 ('failed': any code of an error), from $9 until $10.
select id as audit_id, tenant, occurred_at, actor, role, action, subject, request_id, outcome from audit_events
where ($1::text is null or tenant = $1) and ($2::timestamptz is null or (occurred_at, id) < ($2, $3::uuid))
  and ($5::text is null or strpos(lower(concat_ws(' ', actor, role, action, subject, request_id, tenant)), lower($5)) > 0)
  and ($6::text is null or actor = $6) and ($7::text is null or action = $7)
  and ($8::text is null or $8 = case when outcome in ('done', 'refused') then outcome else 'failed' end)
  and ($9::timestamptz is null or occurred_at >= $9) and ($10::timestamptz is null or occurred_at < $10)
order by occurred_at desc, id desc limit $4

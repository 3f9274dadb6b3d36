-- API keys: who may call, stored as hashes. Operational, not a projection: back the schema up with the
-- tables. A separate schema, so that a role that may read documents cannot read it.
create schema credentials;
revoke all on schema credentials from public;

create table credentials.api_keys (
  id text primary key check (id ~ '^[0-9a-f]{16}$'),
  tenant text not null,
  name text not null,
  role text not null check (role in ('reader', 'writer', 'admin', 'operator')),
  -- Names such as `user:ana`; null: the key reads every document of its tenant.
  readers text[],
  created_at timestamptz not null default clock_timestamp(),
  created_by text not null,
  expires_at timestamptz,
  revoked_at timestamptz,
  rotated_at timestamptz,
  hash text not null,
  -- The hash of the secret before the last rotation, while it is still valid.
  previous_hash text,
  previous_until timestamptz
);
create index api_keys_by_tenant on credentials.api_keys (tenant, created_at desc, id);
revoke all on credentials.api_keys from public;

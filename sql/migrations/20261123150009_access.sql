-- API keys, the audit log, and row-level security.
-- Credentials are operational, not a projection: back the schema up with the tables. A separate schema, so that a
-- role that may read documents cannot read it.
create schema credentials;
revoke all on schema credentials from public;

-- Who may call the API, stored as hashes.
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

set local search_path = anabranch, extensions, public;

-- Administrative actions, projected from topic `control`. They name the action, never a secret or a text.
create table audit_events (
  id uuid primary key,
  tenant text not null,
  occurred_at timestamptz not null,
  actor text not null,
  role text not null,
  action text not null,
  subject text,
  request_id text,
  outcome text not null
);
create index audit_events_by_tenant on audit_events (tenant, occurred_at desc, id desc);
create index audit_events_by_time on audit_events (occurred_at desc, id desc);

-- Direct access for Supabase clients: role `authenticated` (elsewhere `anabranch_reader`) may read
-- projections of its own tenant, limited to its reader names. Policies do not apply to the owner and the
-- workers. No other grants exist.

-- Claims of the JSON Web Token as PostgREST passes them. Without a tenant nothing is readable. nullif: after
-- its first use in a session the setting is '' rather than null.
create function jwt_claims() returns jsonb language sql stable
as $$ select coalesce(nullif(current_setting('request.jwt.claims', true), ''), '{}')::jsonb $$;

create function jwt_tenant() returns text language sql stable set search_path = anabranch
as $$ select jwt_claims() -> 'app_metadata' ->> 'tenant_id' $$;

-- The caller's reader names, derived from the claims as in the API. No claim grants all documents: direct
-- reads are always limited to names.
create function jwt_readers() returns text[] language sql stable set search_path = anabranch
as $$
  select array_remove(array['user:' || (jwt_claims() ->> 'sub')], null) || coalesce((
    select array_agg('group:' || name) from jsonb_array_elements_text(
      case jsonb_typeof(jwt_claims() -> 'app_metadata' -> 'groups') when 'array' then jwt_claims() -> 'app_metadata' -> 'groups' else '[]' end
    ) name
  ), '{}')
$$;

-- Runs as the owner, to whom policies do not apply: whether the caller may read a revision, or (null) the
-- document.
create function jwt_may_read(document uuid, of_revision bigint[]) returns bool language sql stable security definer
set search_path = anabranch, extensions, public
as $$
  select exists (
    select from documents d left join document_revisions r on r.document_id = d.id and r.ord = of_revision
    where d.id = document and d.tenant = jwt_tenant() and d.latest is not null and may_read(jwt_readers(), d.readers)
      and (of_revision is null or 'readers' = any (d.amended) or may_read(jwt_readers(), r.readers))
  )
$$;

-- Enables row-level security on a table with column `tenant`, and `document_id` (and `ord`) if present. Each
-- partition needs its own policies: those of the parent do not apply to a query that names the partition.
create function secure_rows(name text) returns void language plpgsql set search_path = anabranch, extensions, public
as $$
declare
  has_document bool := exists (select from pg_attribute where attrelid = name::regclass and attname = 'document_id' and not attisdropped);
  has_ord bool := exists (select from pg_attribute where attrelid = name::regclass and attname = 'ord' and not attisdropped);
begin
  execute format('alter table %I enable row level security', name);
  execute format('drop policy if exists readable on %I', name);
  execute format('create policy readable on %I for select using (tenant = (select jwt_tenant()) and %s)', name, case
    when name = 'documents' then 'latest is not null and may_read((select jwt_readers()), readers)'
    when name = 'runs' then 'requested_by = (select ''jwt:'' || (jwt_claims() ->> ''sub''))'
    when has_document then format('jwt_may_read(document_id, %s)', case when has_ord then 'ord' else 'null' end)
    else 'false'
  end);
end
$$;

do $$
declare
  name text;
begin
  foreach name in array array[
    'documents', 'document_revisions', 'revision_texts', 'parent_chunks', 'child_chunks', 'chunk_vectors', 'entity_mentions', 'relations', 'claims', 'visible', 'runs'
  ] loop
    perform secure_rows(name);
  end loop;
end
$$;

-- Grants for the role for direct reads. If the role cannot be created now, `anabranch doctor` names this
-- function.
create function grant_direct_access(reader text default 'anabranch_reader') returns void language plpgsql set search_path = anabranch, extensions, public
as $$
begin
  execute format('grant usage on schema anabranch, extensions to %I', reader);
  execute format(
    'grant select on documents, document_revisions, revision_texts, parent_chunks, child_chunks, entity_mentions, relations, claims, visible, runs, entities, live_generation to %I',
    reader
  );
end
$$;
revoke execute on function grant_direct_access(text) from public;

-- The role for direct reads: `authenticated` on Supabase, else our own if we may create it (`anabranch
-- doctor` reports it).
do $$
declare
  reader text := case when exists (select from pg_roles where rolname = 'authenticated') then 'authenticated' else 'anabranch_reader' end;
begin
  if not exists (select from pg_roles where rolname = reader) then
    begin
      create role anabranch_reader nologin;
    exception
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then return;
    end;
  end if;
  perform grant_direct_access(reader);
end
$$;

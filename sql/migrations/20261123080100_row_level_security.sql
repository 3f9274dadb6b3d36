-- Direct access for clients of Supabase: role `authenticated` (elsewhere `anabranch_reader`) may read the views of the log, of its own tenant, as far as its
-- names may read them. Owner and workers are not held by policies. Everything else of ours is granted to nobody.
set local search_path = anabranch, extensions, public;

-- Claims of the JSON Web Token as PostgREST hands them over. Without a tenant there is nothing to read.
create function jwt_claims() returns jsonb language sql stable
as $$ select coalesce(nullif(current_setting('request.jwt.claims', true), ''), '{}')::jsonb $$;

create function jwt_tenant() returns text language sql stable set search_path = anabranch
as $$ select jwt_claims() -> 'app_metadata' ->> 'tenant_id' $$;

-- The names that the caller goes by, as the API makes them from the same claims. There are no claims that stand for all documents: who reads tables directly
-- is always limited to names.
create function jwt_readers() returns text[] language sql stable set search_path = anabranch
as $$
  select array_remove(array['user:' || (jwt_claims() ->> 'sub')], null) || coalesce((
    select array_agg('group:' || name) from jsonb_array_elements_text(
      case jsonb_typeof(jwt_claims() -> 'app_metadata' -> 'groups') when 'array' then jwt_claims() -> 'app_metadata' -> 'groups' else '[]' end
    ) name
  ), '{}')
$$;

-- As the owner, for whom policies do not hold: whether the caller may read a revision of a document. Null stands for the document as such.
create function jwt_may_read(document uuid, of_revision bigint[]) returns bool language sql stable security definer
set search_path = anabranch, extensions, public
as $$
  select exists (
    select from documents d left join document_revisions r on r.document_id = d.id and r.ord = of_revision
    where d.id = document and d.tenant = jwt_tenant() and d.latest is not null and may_read(jwt_readers(), d.readers)
      and (of_revision is null or 'readers' = any (d.amended) or may_read(jwt_readers(), r.readers))
  )
$$;

-- Row-level security of a table with a column `tenant`, and with `document_id` (and `ord`) where it has them. A table of a generation gets it when it is made:
-- policies of a partitioned table hold for those who read it by its own name, and not for those who name the partition.
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
    when name = 'runs' then 'asked_by = (select ''jwt:'' || (jwt_claims() ->> ''sub''))'
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
  -- Partitions that are there already.
  for name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
    where p.relnamespace = 'anabranch'::regnamespace and p.relrowsecurity
  loop
    perform secure_rows(name);
  end loop;
end
$$;

-- Views read with the rights of the caller, not of their owner.
alter view entities set (security_invoker = true);

-- Grants for the role that reads directly. Where that role cannot be made now, `anabranch doctor` says so and names this function.
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

-- Who may read directly: on Supabase the role of signed-in users, elsewhere one of ours, where we may make one (`anabranch doctor` says if not).
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

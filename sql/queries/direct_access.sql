-- Roles for direct reads, whether they have access, and readable tables without row-level security.
with reader as (
  select oid, rolname from pg_roles where rolname in ('authenticated', 'anon', 'anabranch_reader')
), relation as (
  select c.oid, c.relname, n.nspname || '.' || c.relname as name,
    c.relrowsecurity or coalesce(c.reloptions @> '{security_invoker=true}', false) as secured
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname in ('anabranch', 'keystore', 'credentials') and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and exists (select from reader r where has_schema_privilege(r.oid, n.oid, 'usage') and has_any_column_privilege(r.oid, c.oid, 'select'))
)
select exists (select from reader where rolname <> 'anon') as has_role,
  exists (select from relation where name = 'anabranch.documents') as is_granted,
  array(select name from relation where not secured and relname <> 'live_generation' order by name) as unsecured

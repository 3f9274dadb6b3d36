-- Creates the application's role and database on the embedded server. Run as superuser in template1. Idempotent.
select 'create role anabranch login createrole' where not exists (select from pg_roles where rolname = 'anabranch') \gexec
alter role anabranch nosuperuser createrole;
grant pg_monitor, pg_checkpoint to anabranch;

-- Older versions stored the tables in database `postgres`, owned by the superuser.
select exists (select from pg_database where datname = 'anabranch') as made \gset
\if :made
\else
  \connect postgres
  select to_regnamespace('anabranch') is not null as older \gset
  \connect template1
  \if :older
    alter database postgres rename to anabranch;
    create database postgres template template0;
  \endif
\endif

-- pgvector is not a trusted extension, so only a superuser may create it: here in template1, for databases created
-- later, and below in the existing one.
create schema if not exists extensions;
create extension if not exists vector with schema extensions;
grant usage on schema extensions to public;
grant execute on function pg_switch_wal() to anabranch;

select 'create database anabranch' where not exists (select from pg_database where datname = 'anabranch') \gexec
alter database anabranch owner to anabranch;
\connect anabranch
create schema if not exists extensions;
create extension if not exists vector with schema extensions;
grant usage on schema extensions to public;
grant execute on function pg_switch_wal() to anabranch;

do $$
declare
  ours record;
begin
  for ours in
    with own as (
      select oid, nspname from pg_namespace
      where nspname !~ '^pg_' and nspname not in ('information_schema', 'extensions', 'public')
    ), members as (
      select classid, objid from pg_depend where deptype in ('e', 'a', 'i') and refclassid in ('pg_extension'::regclass, 'pg_class'::regclass)
    )
    select format('alter schema %I owner to anabranch', nspname) as command from own
    union all
    -- Indexes, and sequences of a column, follow the owner of their table.
    select format('alter table %s owner to anabranch', c.oid::regclass)
    from pg_class c join own on own.oid = c.relnamespace
    where c.relowner = 10 and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
      and not (c.relkind = 'S' and (('pg_class'::regclass, c.oid) in (select classid, objid from members)))
    union all
    select format('alter routine %s owner to anabranch', p.oid::regprocedure)
    from pg_proc p join own on own.oid = p.pronamespace
    where p.proowner = 10 and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    union all
    select format('alter type %s owner to anabranch', t.oid::regtype)
    from pg_type t join own on own.oid = t.typnamespace
    where t.typowner = 10 and t.typtype in ('e', 'd', 'r') and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
  loop
    execute ours.command;
  end loop;
end $$;

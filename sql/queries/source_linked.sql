-- These row keys and all keys they were renamed from or to.
with recursive linked (key) as (
  select unnest($2::text[])
  union
  select case when c.key = l.key then c.old_key else c.key end
  from linked l join source_changes c on c.source = $1 and c.old_key is not null and (c.key = l.key or c.old_key = l.key)
)
select key from linked

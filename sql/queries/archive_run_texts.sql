-- Copy texts that recorded answers used, and that no other generation has, into the history.
-- Run before generation $1 is dropped. Includes texts used in earlier, dropped generations, which this one may
-- share.
with others as materialized (
  select coalesce(array_agg(name), '{}') as names from generations where name <> $1 and state in ('live', 'standby', 'shadow')
), asked as (
  select distinct (c ->> 'id')::uuid as id
  from runs r, jsonb_array_elements((r.basis -> 'chunks') || (r.basis -> 'parents')) c
  where r.basis is not null and (r.generation = $1 or r.generation not in (select name from generations where state in ('live', 'standby', 'shadow')))
), texts as (
  select t.document_id, t.tenant, t.text from asked a join child_chunks t on t.generation = $1 and t.id = a.id
  where not exists (select from child_chunks o, others where o.generation = any (others.names) and o.id = a.id)
  union all
  select t.document_id, t.tenant, t.text from asked a join parent_chunks t on t.generation = $1 and t.id = a.id
  where not exists (select from parent_chunks o, others where o.generation = any (others.names) and o.id = a.id)
)
insert into chunk_history (document_id, text_sha256, tenant, text, generation)
select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text, $1 from texts order by document_id, hash
on conflict do nothing

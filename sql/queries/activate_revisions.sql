-- Activate the revisions that have all chunk and vector parts; the pointer only moves forward.
-- Also adds the new words to the lexical statistics, subtracts those of the previous revision, and stores the
-- visibility change with event $5, whose pending reaction reads it again. `follows`: rows of older revisions
-- exist.
with candidate as (
  select document_id, ord::bigint[] as ord, tenant, event_id from unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[]) k (document_id, ord, tenant, event_id)
), complete as (
  select c.document_id, c.ord, c.tenant, c.event_id
  from candidate c join settled s on s.generation = $1 and s.document_id = c.document_id and s.ord = c.ord
  group by c.document_id, c.ord, c.tenant, c.event_id
  having count(*) filter (where s.kind = 'chunks') >= max(s.parts) filter (where s.kind = 'chunks')
     and count(*) filter (where s.kind = 'vectors') >= max(s.parts) filter (where s.kind = 'vectors')
), flipped as materialized (
  select c.*, v.ord as previous,
         (select count(*) from child_chunks x where x.generation = $1 and x.document_id = c.document_id and x.ord = c.ord)::int as chunks,
         exists (select from settled o where o.generation = $1 and o.document_id = c.document_id and o.ord < c.ord)
           or exists (select from revision_texts o where o.generation = $1 and o.document_id = c.document_id and o.ord < c.ord) as follows
  from complete c left join visible v on v.generation = $1 and v.document_id = c.document_id
  where v.ord is null or v.ord < c.ord
), pointed as (
  insert into visible (generation, document_id, ord, tenant, chunks)
  select $1, document_id, ord, tenant, chunks from flipped order by document_id
  on conflict (generation, document_id) do update set ord = excluded.ord, chunks = excluded.chunks
), noted as (
  update handled h
  set flip = jsonb_build_object('document_id', f.document_id, 'order', f.ord, 'chunks', f.chunks, 'previous', f.previous)
  from flipped f where h.generation = $1 and h.stage = $6 and h.event_id = f.event_id
), signed as (
  select document_id, ord, 1 as sign from flipped union all select document_id, previous, -1 from flipped where previous is not null
), {insert_lexical_deltas}
select document_id, ord, chunks, previous, follows, event_id from flipped

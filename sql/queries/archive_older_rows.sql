-- Delete rows of revisions older than these, and move the texts of chunks and parents into the history.
with k as (
  select document_id, ord::bigint[] as ord from unnest($2::uuid[], $3::text[]) k (document_id, ord)
), gone as (
  delete from child_chunks t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord returning t.document_id, t.tenant, t.text
), parents as (
  delete from parent_chunks t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord returning t.document_id, t.tenant, t.text
), kept as (
  insert into chunk_history (document_id, text_sha256, tenant, text)
  select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text from (select * from gone union all select * from parents) g order by document_id, hash
  on conflict (document_id, text_sha256) do update set generation = null where chunk_history.generation is not null
), vectors as (
  delete from chunk_vectors t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
), states as (
  delete from chunk_states t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
), mentions as (
  delete from entity_mentions t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
), related as (
  delete from relations t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
), claimed as (
  delete from claims t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
), parts as (
  delete from settled t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord
)
delete from revision_texts t using k where t.generation = $1 and t.document_id = k.document_id and t.ord < k.ord

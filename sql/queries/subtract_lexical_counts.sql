-- Subtract revisions from the lexical statistics.
with signed as (
  select document_id, ord::bigint[] as ord, -1 as sign from unnest($2::uuid[], $3::text[]) k (document_id, ord)
), {insert_lexical_deltas}
select

-- Row counts and sums of row hashes of generation $1, by table.
-- Excludes orders, event ids and clock times, which differ between equal generations. With $2, only documents that
-- this other generation shows in the same revision.
with shown as materialized (
  select v.document_id, v.ord from visible v
  where v.generation = $1
    and ($2::text is null or exists (select from visible o where o.generation = $2 and o.document_id = v.document_id and o.ord = v.ord))
), lines as (
  select 'documents' as name, row(d.id, d.tenant, d.external_id, d.source_uri, d.filename, d.media_type, d.title, d.language, d.collection, d.tags, d.metadata,
    d.document_date, d.content_sha256, d.readers)::text as line
  from documents d join shown s on s.document_id = d.id
  union all
  select 'texts', row(t.document_id, t.tenant, t.title, t.language, t.media_type, t.content_sha256, t.text_sha256, t.characters, t.pages, t.warnings)::text
  from revision_texts t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'parent_chunks', row(t.id, t.document_id, t.tenant, t.ordinal, t.text, t.section, t.char_start, t.char_end, t.pages, t.tokens)::text
  from parent_chunks t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'child_chunks', row(t.id, t.parent_id, t.document_id, t.tenant, t.ordinal, t.kind, t.text, t.prefix, t.char_start, t.char_end, t.spans, t.tokens,
    t.language, t.cfg, t.tsv, t.bm)::text
  from child_chunks t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'chunk_vectors', row(t.chunk_id, t.document_id, t.tenant, t.embedding, t.background_dense, t.background_maxsim)::text
  from chunk_vectors t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'chunk_states', row(t.chunk_id, t.document_id, t.tenant, t.blob_length)::text
  from chunk_states t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'entity_mentions', row(t.id, t.document_id, t.tenant, t.chunk_id, t.entity_id, t.type, t.key, t.name, t.char_start, t.char_end)::text
  from entity_mentions t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'relations', row(t.id, t.document_id, t.tenant, t.chunk_id, t.subject_id, t.type, t.object_id, t.weight, t.extractor, t.char_start, t.char_end)::text
  from relations t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'claims', row(t.id, t.document_id, t.tenant, t.chunk_id, t.subject_id, t.property, t.value, t.char_start, t.char_end)::text
  from claims t join shown s using (document_id, ord) where t.generation = $1
  union all
  select 'visible', row(document_id, tenant, chunks)::text from visible where generation = $1
  union all
  select 'lexical_counts', row(tenant, cfg, lexeme, sum(delta))::text from lexical_deltas where generation = $1 group by tenant, cfg, lexeme having sum(delta) <> 0
  union all
  select 'corpus_counts', row(tenant, cfg, sum(chunks))::text from corpus_deltas where generation = $1 group by tenant, cfg having sum(chunks) <> 0
)
select name, count(*) as rows, sum(('x' || left(md5(line), 16))::bit(64)::bigint)::text as total from lines group by name

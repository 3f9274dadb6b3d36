-- Several generations side by side: what each was built from and when. Indexes move to partitions, so that a
-- generation that is being loaded has only primary keys.
set local search_path = anabranch, extensions, public;

alter table generations
  add column base text,
  add column purpose text not null default 'first' check (purpose in ('first', 'rebuild', 'reindex')),
  add column barrier jsonb,
  add column built_at timestamptz;

-- Offset in topic `control` of the decision that made it live; an earlier decision that is read later has no
-- effect.
alter table live_generation add column decided_at bigint not null default -1;

-- How a generation is built. Operational, not a projection.
create table generation_builds (
  generation text primary key,
  paused bool not null default false,
  events_per_second real check (events_per_second > 0),
  phase text not null default 'loading',
  error jsonb
);

drop index child_chunks_by_word, child_chunks_by_id, child_chunks_by_parent, parent_chunks_by_id, lexical_deltas_by_word, corpus_deltas_by_tenant,
  chunk_vectors_by_tenant, visible_by_tenant, entity_mentions_by_key, entity_mentions_by_entity, entity_mentions_by_chunk, claims_by_subject,
  relations_by_subject, relations_by_object;

-- Names as in sql/secondary_indexes.py.
do $$
declare
  g text;
begin
  for g in select name from generations where state <> 'dropped' loop
    execute format('create index %I on %I using gin (tsv) with (fastupdate = off)', 'child_chunks_' || g || '_by_word', 'child_chunks_' || g);
    execute format('create index %I on %I (id)', 'child_chunks_' || g || '_by_id', 'child_chunks_' || g);
    execute format('create index %I on %I (parent_id)', 'child_chunks_' || g || '_by_parent', 'child_chunks_' || g);
    execute format('create index %I on %I (id)', 'parent_chunks_' || g || '_by_id', 'parent_chunks_' || g);
    execute format('create index %I on %I (tenant, cfg, lexeme) include (delta)', 'lexical_deltas_' || g || '_by_word', 'lexical_deltas_' || g);
    execute format('create index %I on %I (tenant, cfg) include (chunks)', 'corpus_deltas_' || g || '_by_tenant', 'corpus_deltas_' || g);
    execute format('create index %I on %I (tenant)', 'chunk_vectors_' || g || '_by_tenant', 'chunk_vectors_' || g);
    execute format('create index %I on %I (tenant)', 'visible_' || g || '_by_tenant', 'visible_' || g);
    execute format('create index %I on %I (tenant, key, type)', 'entity_mentions_' || g || '_by_key', 'entity_mentions_' || g);
    execute format('create index %I on %I (entity_id) include (chunk_id, document_id, ord)', 'entity_mentions_' || g || '_by_entity', 'entity_mentions_' || g);
    execute format('create index %I on %I (chunk_id)', 'entity_mentions_' || g || '_by_chunk', 'entity_mentions_' || g);
    execute format('create index %I on %I (subject_id)', 'claims_' || g || '_by_subject', 'claims_' || g);
    execute format('create index %I on %I (subject_id, weight desc) include (object_id, document_id, ord)', 'relations_' || g || '_by_subject', 'relations_' || g);
    execute format('create index %I on %I (object_id, weight desc) include (subject_id, document_id, ord)', 'relations_' || g || '_by_object', 'relations_' || g);
  end loop;
end $$;
